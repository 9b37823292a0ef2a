/** Where the daemon of this pod listens, by the settings that it was started with. */
import { UsageError } from "./io.ts";

const DEFAULT_PORT = 9000;

type Env = Readonly<Record<string, string | undefined>>;

export function localAddress(env: Env): { host: string; port: number } {
  const host = env.DAEMON_HOST;
  return { host: !host || host === "::" || host === "0.0.0.0" ? "127.0.0.1" : host, port: localPort(env) };
}

function localPort(env: Env): number {
  for (const name of ["PROXY_PORT", "DAEMON_PORT", "PORT"]) {
    const text = env[name];
    // Kubernetes puts `tcp://…` there for a service of that name.
    if (!text || text.includes("://")) continue;
    const port = Number(text);
    if (Number.isInteger(port) && port > 0 && port < 65_536) return port;
    throw new UsageError(`${name}=${text} names no port to connect to`);
  }
  return DEFAULT_PORT;
}
