/** A reader whose socket the test holds in its hands: it reads when it is told to, and leaves as it is told to. */
import { connect, type Socket } from "node:net";
import type { TestDaemon } from "./daemon.ts";

export class RawReader {
  received = 0;
  /** When set before the first byte comes: all of them. */
  kept: Buffer[] | undefined;
  closed = false;
  readonly #socket: Socket;

  readonly #take = (bytes: Buffer): void => {
    this.received += bytes.length;
    this.kept?.push(bytes);
  };

  /** Sends the request and reads nothing, not even the headers. */
  constructor(daemon: TestDaemon, path: string, body?: string) {
    this.#socket = connect(daemon.port, "127.0.0.1");
    this.#socket.pause();
    this.#socket.on("error", () => {});
    this.#socket.on("close", () => {
      this.closed = true;
    });
    this.#socket.on("data", this.#take);
    const head = [`${body === undefined ? "GET" : "POST"} ${path} HTTP/1.1`, "Host: x"];
    head.push(`Authorization: Bearer ${daemon.token}`);
    if (body !== undefined) head.push(`Content-Length: ${Buffer.byteLength(body)}`);
    this.#socket.write(`${head.join("\r\n")}\r\n\r\n${body ?? ""}`);
  }

  /** Takes some bytes every `everyMs` and no more, until the socket closes. */
  readSlowly(everyMs: number): void {
    this.#socket.on("data", () => {
      this.#socket.pause();
      setTimeout(() => this.#socket.resume(), everyMs);
    });
    this.#socket.resume();
  }

  /** Stops again when this much has come in all. */
  readUpTo(bytes: number): void {
    this.#socket.on("data", () => {
      if (this.received < bytes) return;
      this.#socket.pause();
      this.#socket.removeAllListeners("data");
      this.#socket.on("data", this.#take);
    });
    this.#socket.resume();
  }

  read(): void {
    this.#socket.resume();
  }

  /** The body of what was kept, which came in chunks; undefined when it broke off. */
  body(): Buffer | undefined {
    const all = Buffer.concat(this.kept ?? []);
    const parts: Buffer[] = [];
    for (let at = all.indexOf("\r\n\r\n") + 4; ; ) {
      const lineEnd = all.indexOf("\r\n", at);
      if (lineEnd < 0) return undefined;
      const size = Number.parseInt(all.toString("latin1", at, lineEnd), 16);
      if (size === 0) return Buffer.concat(parts);
      parts.push(all.subarray(lineEnd + 2, lineEnd + 2 + size));
      at = lineEnd + 2 + size + 2;
    }
  }

  /** Closes the socket: with a FIN, or with a reset. */
  leave(how: "close" | "reset"): void {
    if (how === "close") this.#socket.destroy();
    else this.#socket.resetAndDestroy();
  }
}
