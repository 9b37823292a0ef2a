/**
 * Log lines to a stream that somebody may not read. A full pipe keeps what is written in our memory, so lines past a
 * bound are dropped, and how many is said as soon as there is room again.
 */
const MAX_WAITING_BYTES = 1 << 20;

/** What of a writable stream is needed; its `writableLength` does not tell what waits. */
export interface LineStream {
  write(text: string, done: () => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
}

export function createLineSink(stream: LineStream, onDropped: (lines: number) => string): (line: string) => void {
  let waiting = 0;
  let dropped = 0;
  let closed = false;
  // Nobody reads the log any more: no reason to end the daemon.
  stream.on("error", () => {
    closed = true;
  });
  const put = (line: string): void => {
    waiting += line.length;
    stream.write(line, () => {
      waiting -= line.length;
    });
  };
  return (line) => {
    if (closed) return;
    if (waiting > MAX_WAITING_BYTES) {
      dropped++;
      return;
    }
    if (dropped > 0) {
      const count = dropped;
      dropped = 0;
      put(onDropped(count));
    }
    put(line);
  };
}
