/** Works on all items, `limit` of them at a time, and begins them in their order. Rejects with the first error. */
export async function eachAtATime<T>(
  limit: number,
  items: readonly T[],
  work: (item: T) => Promise<void>,
): Promise<void> {
  const rest = items.values();
  async function worker(): Promise<void> {
    for (const item of rest) await work(item);
  }
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
}
