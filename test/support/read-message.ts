/** A run's chunks as a client of the AI SDK reads them. */
import { readUIMessageStream, type UIMessage, type UIMessageChunk } from "ai";

export interface ReadMessage {
  readonly message: UIMessage | undefined;
  /** What the reader complained of, and the texts of `error` chunks, in order. */
  readonly errors: string[];
}

export async function readMessage(chunks: readonly unknown[]): Promise<ReadMessage> {
  const errors: string[] = [];
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk as UIMessageChunk);
      controller.close();
    },
  });
  let message: UIMessage | undefined;
  const onError = (error: unknown): void => void errors.push((error as Error).message);
  for await (const snapshot of readUIMessageStream({ stream, onError })) message = snapshot;
  return { message, errors };
}
