/** HTTP as bytes on a socket: for requests that no client library would send. */
import { connect, type Socket } from "node:net";

export interface RawAnswer {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
  /** All that came, interim answers included. */
  readonly text: string;
}

export interface RawRequest {
  readonly port: number;
  /** Request line and headers, without the empty line. */
  readonly head: readonly string[];
  readonly body?: Iterable<Uint8Array>;
}

/** Sends, and resolves when a whole answer with a Content-Length, or the end of the connection, has come. */
export async function exchange({ port, head, body = [] }: RawRequest): Promise<RawAnswer> {
  const socket = connect(port, "127.0.0.1");
  let text = "";
  try {
    const answered = new Promise<RawAnswer | undefined>((resolve) => {
      socket.on("data", (bytes) => {
        text += bytes.toString("latin1");
        const answer = parseAnswer(text);
        if (answer) resolve(answer);
      });
      socket.on("error", () => resolve(undefined));
      socket.on("close", () => resolve(undefined));
    });
    socket.write(`${head.join("\r\n")}\r\n\r\n`);
    void feed(socket, body);
    const answer = await answered;
    if (!answer) throw new Error(`no whole answer: ${JSON.stringify(text)}`);
    return answer;
  } finally {
    socket.destroy();
  }
}

async function feed(socket: Socket, body: Iterable<Uint8Array>): Promise<void> {
  for (const piece of body) {
    if (socket.destroyed) return;
    if (!socket.write(piece)) await new Promise((resolve) => socket.once("drain", resolve));
  }
}

/** The final answer in `text`, once all of it is there. */
function parseAnswer(text: string): RawAnswer | undefined {
  const rest = text.replace(/^(HTTP\/1\.1 1\d\d [^\r]*\r\n(?:[^\r]+\r\n)*\r\n)+/, "");
  const split = rest.indexOf("\r\n\r\n");
  if (split < 0) return undefined;
  const [first = "", ...lines] = rest.slice(0, split).split("\r\n");
  const headers = new Map(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
    }),
  );
  const body = rest.slice(split + 4);
  if (body.length < Number(headers.get("content-length") ?? 0)) return undefined;
  return { status: Number(first.split(" ")[1]), headers, body, text };
}
