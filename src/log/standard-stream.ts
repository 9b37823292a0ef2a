/**
 * stdout or stderr as a stream of lines, without `process.stdout`: that loads 10 ms of stream code before the daemon
 * listens. Nothing blocks on a reader that does not read, and nothing throws for one that is gone.
 */
import type { BunFile, FileSink } from "bun";
import type { LineStream } from "./line-sink.ts";

export function standardStream(file: BunFile): LineStream {
  let writer: FileSink | undefined;
  let onError = (_error: Error): void => {};
  return {
    async write(text, done) {
      try {
        writer ??= file.writer({ highWaterMark: 1 });
        // Both can fail at once, by throwing, and later.
        await Promise.all([writer.write(text), writer.flush()]);
        done();
      } catch (error) {
        onError(error instanceof Error ? error : new Error(String(error)));
      }
    },
    on(_event, listener) {
      onError = listener;
    },
  };
}
