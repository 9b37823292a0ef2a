/** A reader whose socket the test holds in its hands: it reads when it is told to, and leaves as it is told to. */
import { connect, type Socket } from "node:net";
import type { TestDaemon } from "./daemon.ts";

export class RawReader {
  received = 0;
  closed = false;
  readonly #socket: Socket;

  /** Sends the request and reads nothing, not even the headers. */
  constructor(daemon: TestDaemon, path: string, body?: string) {
    this.#socket = connect(daemon.port, "127.0.0.1");
    this.#socket.pause();
    this.#socket.on("error", () => {});
    this.#socket.on("close", () => {
      this.closed = true;
    });
    this.#socket.on("data", (bytes) => {
      this.received += bytes.length;
    });
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

  read(): void {
    this.#socket.resume();
  }

  /** Closes the socket: with a FIN, or with a reset. */
  leave(how: "close" | "reset"): void {
    if (how === "close") this.#socket.destroy();
    else this.#socket.resetAndDestroy();
  }
}
