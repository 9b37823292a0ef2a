/**
 * stdout or stderr as a stream of lines, without `process.stdout`: that loads 10 ms of stream code before the daemon
 * listens. Nothing blocks on a reader that does not read.
 */
import type { BunFile } from "bun";
import type { LineStream } from "./line-sink.ts";

export function standardStream(file: BunFile): LineStream {
  const writer = file.writer({ highWaterMark: 1 });
  let onError = (_error: Error): void => {};
  return {
    write(text, done) {
      // A write that fails tells both ways.
      Promise.all([writer.write(text), writer.flush()]).then(done, (error: Error) => onError(error));
    },
    on(_event, listener) {
      onError = listener;
    },
  };
}
