export function watchReaders(_: unknown): () => void {
  return () => {};
}
