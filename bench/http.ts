/** HTTP over a bare socket: cheap enough that the client of a load is not what is measured. */
import type { Socket } from "bun";

export interface Exchange {
  readonly status: number;
  /** From the sending of the request; NaN when none came. A frame begins with a brace, a keepalive is none. */
  readonly firstFrameMs: number;
  readonly totalMs: number;
  /** Of head and body as they came over the wire. */
  readonly bytes: number;
  /** The last bytes of the body. */
  readonly tail: string;
}

export interface Ask {
  readonly port: number;
  readonly path: string;
  readonly method?: string;
  readonly token?: string;
  readonly body?: string;
}

const TAIL_BYTES = 4096;
const BRACE = 0x7b;

function requestText({ port, path, method = "GET", token, body }: Ask, connection: "close" | "keep-alive"): string {
  const head = [`${method} ${path} HTTP/1.1`, `Host: 127.0.0.1:${port}`, `Connection: ${connection}`];
  if (token !== undefined) head.push(`Authorization: Bearer ${token}`);
  if (body !== undefined) head.push("Content-Type: application/json", `Content-Length: ${Buffer.byteLength(body)}`);
  return `${head.join("\r\n")}\r\n\r\n${body ?? ""}`;
}

/** Asks on a connection of its own and reads until the server closes it. Rejects when it cannot connect. */
export function exchange(ask: Ask): Promise<Exchange> {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now();
    let head = "";
    let inBody = false;
    let bytes = 0;
    let firstFrameMs = Number.NaN;
    let tail = Buffer.alloc(0);
    const lookForFrame = (part: Uint8Array): void => {
      if (part.indexOf(BRACE) >= 0) firstFrameMs = performance.now() - startedAt;
    };
    const readHead = (part: Buffer): void => {
      head += part.toString("latin1");
      const end = head.indexOf("\r\n\r\n");
      if (end < 0) return;
      inBody = true;
      lookForFrame(Buffer.from(head.slice(end + 4), "latin1"));
    };
    const finish = (): void => {
      const status = Number(head.slice(9, 12));
      resolve({ status, firstFrameMs, totalMs: performance.now() - startedAt, bytes, tail: tail.toString() });
    };
    Bun.connect({
      hostname: "127.0.0.1",
      port: ask.port,
      socket: {
        open: (socket) => void socket.write(requestText(ask, "close")),
        data(_socket, part) {
          bytes += part.length;
          if (!inBody) readHead(part);
          else if (Number.isNaN(firstFrameMs)) lookForFrame(part);
          tail = Buffer.concat([tail.subarray(-TAIL_BYTES), part.subarray(-TAIL_BYTES)]);
        },
        close: finish,
        error: (_socket, error) => reject(error),
        connectError: (_socket, error) => reject(error),
      },
    }).catch(reject);
  });
}

/** A connection that is asked again and again, one answer at a time. */
export class Probe {
  private answer = (): void => {};
  private fail: (error: Error) => void = () => {};

  private constructor(private readonly socket: Socket<undefined>) {}

  static async connect(port: number): Promise<Probe> {
    let probe: Probe | undefined;
    const socket = await Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: {
        // Answers of /health are one packet.
        data: () => probe?.answer(),
        close: () => probe?.fail(new Error("the server closed the connection of the probe")),
        error: (_socket, error) => probe?.fail(error),
      },
    });
    probe = new Probe(socket);
    return probe;
  }

  /** How long the answer took, in milliseconds. */
  ask(ask: Ask): Promise<number> {
    return new Promise((resolve, reject) => {
      const askedAt = performance.now();
      this.answer = () => resolve(performance.now() - askedAt);
      this.fail = reject;
      this.socket.write(requestText(ask, "keep-alive"));
    });
  }

  close(): void {
    this.fail = () => {};
    this.socket.end();
  }
}
