/**
 * `probe`: exit 0 when /health answers in time. Over a bare socket: it is started every few seconds, and must neither
 * load anything heavy nor be led to a proxy.
 */
import { connect } from "node:net";
import { defineCommand, wholeNumber } from "./command.ts";
import { EXIT } from "./exit-codes.ts";
import { localAddress } from "./local-address.ts";

const DEFAULT_TIMEOUT_MS = 500;
/** Enough for a status line. */
const MAX_HEAD_CHARS = 4096;

export const { main } = defineCommand({
  usage: "probe [options]",
  about: ["Succeeds when the daemon of this pod answers /health with 200 in time. Says why when it does not."],
  options: {
    host: { type: "string", value: "HOST", about: "else DAEMON_HOST, else 127.0.0.1" },
    port: { type: "string", value: "PORT", about: "else PROXY_PORT, DAEMON_PORT, PORT, else 9000" },
    timeout: { type: "string", value: "MS", about: `for the whole answer's head, ${DEFAULT_TIMEOUT_MS} by default` },
  },
  sections: { "Exit codes": ["0    healthy", "1    not healthy", "2    usage"] },
  positionals: { min: 0, max: 0, name: "" },
  async run(values, _positionals, io) {
    const timeoutMs = wholeNumber(values.timeout, "timeout", 1) ?? DEFAULT_TIMEOUT_MS;
    const port = wholeNumber(values.port, "port", 1);
    const local = localAddress(port === undefined ? io.env : { ...io.env, PROXY_PORT: String(port) });
    const problem = await askHealth(values.host ?? local.host, local.port, timeoutMs);
    if (problem === undefined) return EXIT.ok;
    await io.stderr.write(`dispatchd probe: ${problem}\n`);
    return EXIT.failed;
  },
});

/** What is wrong; undefined when all is well. */
function askHealth(host: string, port: number, timeoutMs: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    let head = "";
    const socket = connect({ host, port });
    const finish = (problem: string | undefined): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(problem);
    };
    const timer = setTimeout(() => finish(`no answer within ${timeoutMs} ms`), timeoutMs);
    socket.setEncoding("latin1");
    socket.on("connect", () => socket.write(`GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`));
    socket.on("data", (text: string) => {
      head += text;
      const status = /^HTTP\/1\.[01] (\d{3})[^\n]*\n/.exec(head)?.[1];
      if (status !== undefined) finish(status === "200" ? undefined : `/health answered ${status}`);
      else if (head.length > MAX_HEAD_CHARS) finish("what listens there does not speak HTTP");
    });
    socket.on("error", (error) => finish(error.message));
    socket.on("close", () => finish("the connection was closed without an answer"));
  });
}
