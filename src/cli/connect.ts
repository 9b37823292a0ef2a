/** Which daemon a command speaks to, and with which token. */
import type { Client } from "../client/index.ts";
import type { Options, Values } from "./command.ts";
import { type CliIo, readAll, UsageError } from "./io.ts";
import { localAddress } from "./local-address.ts";

export const CONNECTION = {
  url: { type: "string", value: "URL", about: "the daemon; else DISPATCHD_URL, else this pod's own port" },
  token: { type: "string", value: "TOKEN", about: "its token; others can read it in the process list" },
  "token-file": { type: "string", value: "FILE", about: "a file with the token" },
} as const satisfies Options;

export const CONNECTION_HELP = {
  Environment: [
    "DISPATCHD_URL                           the daemon, as --url",
    "DISPATCHD_TOKEN, DISPATCHD_TOKEN_FILE   its token; else DAEMON_TOKEN, DAEMON_TOKEN_FILE",
    "PROXY_PORT, DAEMON_PORT, PORT           the port of this pod's own daemon; else 9000",
  ],
} as const;

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

/** A client of the daemon that the options and the environment name. Throws UsageError when they name none. */
export async function connect(values: Values<typeof CONNECTION>, io: CliIo): Promise<Client> {
  const url = daemonUrl(values.url, io.env);
  const token = await findToken(values, io);
  if (LOOPBACK.test(url.hostname)) io.bypassProxy(url.hostname);
  const { createClient } = await import("../client/index.ts");
  // Somebody waits at a terminal: where nothing listens is said at once.
  return createClient({ url: url.href, token, connectForMs: 0 });
}

function daemonUrl(option: string | undefined, env: CliIo["env"]): URL {
  const text = option ?? env.DISPATCHD_URL;
  if (!text) {
    const { host, port } = localAddress(env);
    return new URL(`http://${host.includes(":") ? `[${host}]` : host}:${port}`);
  }
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "http:" && url?.protocol !== "https:") {
    throw new UsageError(`the daemon's url must begin with http:// or https://, not "${text}"`);
  }
  return url;
}

async function findToken(values: Values<typeof CONNECTION>, io: CliIo): Promise<string> {
  const { env } = io;
  if (values.token !== undefined && values["token-file"] !== undefined) {
    throw new UsageError("--token and --token-file exclude each other");
  }
  if (values.token !== undefined) return checkToken(values.token, "--token");
  if (values["token-file"] !== undefined) return readToken(values["token-file"], io);
  for (const name of ["DISPATCHD_TOKEN", "DAEMON_TOKEN"]) {
    const [token, file] = [env[name], env[`${name}_FILE`]];
    if (token) return checkToken(token, name);
    if (file) return readToken(file, io);
  }
  throw new UsageError("no token: set DISPATCHD_TOKEN or DISPATCHD_TOKEN_FILE, or use --token-file");
}

async function readToken(path: string, io: CliIo): Promise<string> {
  try {
    return checkToken((await readAll(io.readFile(path))).trim(), path);
  } catch (thrown) {
    if (thrown instanceof UsageError) throw thrown;
    throw new UsageError(`${path} cannot be read: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  }
}

/** A token travels in a header; what cannot would fail there with a message that shows it. */
function checkToken(token: string, source: string): string {
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw new UsageError(`the token of ${source} must be printable ASCII without spaces`);
}
