/** Stands between a client and an HTTP server on loopback, passes everything on, and counts requests by their method. */
import { connect, createServer, type Server, type Socket } from "node:net";

/** Long enough for the longest line that is looked for to be seen when it comes in two pieces. */
const LINE_BYTES = 4096;
const REQUEST = /^([A-Z]{3,9}) \S{1,2048} HTTP\/1\.1\r\n/gm;

export class RequestCounter implements AsyncDisposable {
  #counts: Record<string, number> = {};
  readonly #sockets = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async before(target: string): Promise<RequestCounter> {
    const { hostname, port } = new URL(target);
    const server = createServer({ allowHalfOpen: true });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("the counter has no port");
    const counter = new RequestCounter(server, `http://127.0.0.1:${address.port}/`);
    server.on("connection", (client) => counter.#passOn(client, connect(Number(port), hostname)));
    return counter;
  }

  /** Since the last call. */
  take(): Readonly<Record<string, number>> {
    const counts = this.#counts;
    this.#counts = {};
    return counts;
  }

  #passOn(client: Socket, backend: Socket): void {
    let unfinished = "";
    client.on("data", (bytes: Buffer) => {
      const text = unfinished + bytes.toString("latin1");
      let end = 0;
      for (const match of text.matchAll(REQUEST)) {
        const method = match[1] ?? "";
        this.#counts[method] = (this.#counts[method] ?? 0) + 1;
        end = match.index + match[0].length;
      }
      // From the start of a line, or the pattern would take the middle of one for its start.
      const rest = text.slice(end).slice(-LINE_BYTES);
      unfinished = rest.slice(rest.lastIndexOf("\n") + 1);
    });
    for (const socket of [client, backend]) {
      this.#sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => this.#sockets.delete(socket));
    }
    client.pipe(backend);
    backend.pipe(client);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }
}
