/**
 * Between stdin and the protocol's library, which drops what it cannot read without a word: whoever asked would wait for
 * ever.
 *
 * - A request that is none by the protocol's schema is answered with -32600, under its id.
 * - A batch, which protocol 2025-03-26 has, is taken apart: each of its messages is a line, and is answered by one.
 * - Everything else goes on as it came: what is no JSON has no id to be answered under.
 */
import { Transform } from "node:stream";
import { ErrorCode, JSONRPCMessageSchema } from "@modelcontextprotocol/sdk/types.js";

const NEWLINE = 0x0a;
/** A longer line is no mistake of a hand, and is not parsed twice. */
const MAX_LOOKED_AT_BYTES = 1 << 20;

export function answerUnreadable(write: (line: string) => void): Transform {
  let carried: Buffer[] = [];
  let bytes = 0;
  /** The line is longer than is looked at. */
  let passes = false;

  const take = (stream: Transform, line: Buffer): void => {
    const messages = passes ? undefined : parse(Buffer.concat([...carried, line]));
    if (messages === undefined) for (const part of [...carried, line]) stream.push(part);
    else for (const message of messages) takeMessage(stream, message);
    carried = [];
    bytes = 0;
    passes = false;
  };
  const takeMessage = (stream: Transform, message: unknown): void => {
    const { id, method } = (message ?? {}) as { readonly id?: unknown; readonly method?: unknown };
    const isAsked = method !== undefined && (typeof id === "string" || typeof id === "number");
    if (!isAsked || JSONRPCMessageSchema.safeParse(message).success) stream.push(`${JSON.stringify(message)}\n`);
    else write(`${JSON.stringify({ jsonrpc: "2.0", id, error: INVALID })}\n`);
  };

  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      let start = 0;
      for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
        take(this, chunk.subarray(start, end + 1));
        start = end + 1;
      }
      const rest = chunk.subarray(start);
      if (rest.length > 0) carried.push(rest);
      bytes += rest.length;
      if (bytes > MAX_LOOKED_AT_BYTES) {
        passes = true;
        for (const part of carried.splice(0)) this.push(part);
      }
      done();
    },
  });
}

const INVALID = { code: ErrorCode.InvalidRequest, message: "this is no request of the protocol" };

/** The messages of a line that has to be looked at: a batch, or what is no message. Undefined: it goes on as it is. */
function parse(line: Buffer): readonly unknown[] | undefined {
  try {
    const value: unknown = JSON.parse(line.toString("utf8"));
    if (Array.isArray(value)) return value;
    return JSONRPCMessageSchema.safeParse(value).success ? undefined : [value];
  } catch {
    return undefined;
  }
}
