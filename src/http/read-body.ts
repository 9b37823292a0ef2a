/** The JSON body of a request, counted while it is read: more than `maxBytes` are never held. */
import { isUtf8 } from "node:buffer";
import { HttpError } from "../errors.ts";
import { JsonRefusal } from "../frames/json-scanner.ts";
import type { LargeJson } from "../frames/large-lines.ts";
import { LARGE_BYTES } from "../frames/large-lines.ts";
import { parseBounded } from "../frames/parse-bounded.ts";

export async function readJson(request: Request, maxBytes: number, largeJson: LargeJson): Promise<unknown> {
  const bytes = await readBytes(request, maxBytes);
  if (bytes.length === 0) throw new HttpError("bad_json", "the body is empty");
  if (!isUtf8(bytes)) throw new HttpError("bad_json", "the body is not UTF-8");
  try {
    // A small one without a step of the event loop between its last byte and the claim of the run.
    return bytes.length > LARGE_BYTES ? await largeJson.parseJson(bytes) : parseBounded(bytes);
  } catch (error) {
    if (error instanceof JsonRefusal) throw new HttpError("bad_input", error.message);
    if (error instanceof SyntaxError) throw new HttpError("bad_json");
    throw error;
  }
}

async function readBytes(request: Request, maxBytes: number): Promise<Buffer> {
  const tooLarge = (): HttpError => new HttpError("body_too_large", `the limit is ${maxBytes} bytes`);
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > maxBytes) throw tooLarge();
  const parts: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const part of request.body ?? []) {
      length += part.length;
      if (length > maxBytes) throw tooLarge();
      parts.push(part);
    }
  } catch (error) {
    // The caller has gone: an everyday event, which nobody is left to be told of.
    if (request.signal.aborted) throw new HttpError("bad_json", "the connection closed within the body");
    throw error;
  }
  return Buffer.concat(parts);
}
