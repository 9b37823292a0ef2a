/** The worker thread for JSON that is too large to be parsed between two answers of /health. Started when needed. */
import { JsonRefusal } from "./json-scanner.ts";
import type { LargeFrame, LineContext } from "./read-large-line.ts";

/** What one parse on the daemon's own thread may take: 256 KiB are about 1 ms. */
export const LARGE_BYTES = 256 << 10;

/** Takes over the bytes that it is given, and the whole buffer that they are in. */
export interface LargeJson {
  /** Undefined for a line that is no frame. */
  readLine(bytes: Buffer, context: LineContext): Promise<LargeFrame | undefined>;
  /** As `parseBounded`. */
  parseJson(bytes: Uint8Array): Promise<unknown>;
  stop(): void;
}

/**
 * In a compiled binary `import.meta.url` names a file of the machine that built it; the worker is an entry point of its
 * own there (scripts/build.sh).
 */
function workerPath(): string {
  if (Bun.main.startsWith("/$bunfs/")) return "/$bunfs/root/frames/large-line-worker.js";
  return new URL("./large-line-worker.ts", import.meta.url).href;
}

type Reply = {
  readonly id: number;
  readonly frame?: LargeFrame;
  readonly value?: unknown;
  readonly bad?: true;
  readonly refused?: { readonly path: string; readonly reason: string };
};

export function createLargeJson(): LargeJson {
  let worker: Worker | undefined;
  let nextId = 1;
  const waiting = new Map<number, { resolve: (reply: Reply) => void; reject: (error: Error) => void }>();

  const ask = (bytes: Uint8Array, line?: LineContext): Promise<Reply> => {
    worker ??= start();
    const id = nextId++;
    const reply = new Promise<Reply>((resolve, reject) => waiting.set(id, { resolve, reject }));
    worker.postMessage({ id, bytes, line }, [bytes.buffer as ArrayBuffer]);
    return reply;
  };
  const start = (): Worker => {
    const created = new Worker(workerPath());
    created.onmessage = (event: MessageEvent<Reply>) => {
      waiting.get(event.data.id)?.resolve(event.data);
      waiting.delete(event.data.id);
    };
    created.onerror = (event) => {
      // A worker that died (out of memory) takes its questions along; the next one starts anew.
      for (const { reject } of waiting.values()) reject(new Error(`parser: ${event.message}`));
      waiting.clear();
      worker = undefined;
    };
    created.unref();
    return created;
  };
  return {
    readLine: async (bytes, context) => (await ask(bytes, context)).frame,
    async parseJson(bytes) {
      const reply = await ask(bytes);
      if (reply.refused) throw new JsonRefusal(reply.refused.path, reply.refused.reason);
      if (reply.bad) throw new SyntaxError("not JSON");
      return reply.value;
    },
    stop: () => worker?.terminate(),
  };
}
