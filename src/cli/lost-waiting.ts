/**
 * What is left of a run that was lost while it waited: its last `waiting` can be resumed as an outcome can, but for what a
 * subagent asked, which ended with it.
 */
import type { Interrupt, Suspended } from "../client/index.ts";

/** Undefined: nothing of it can be resumed. */
export function resumableOf(waiting: unknown): Suspended | undefined {
  const { interrupts, suspension } = (waiting ?? {}) as { interrupts?: unknown; suspension?: unknown };
  if (!Array.isArray(interrupts) || typeof suspension !== "string") return undefined;
  const open = (interrupts as readonly Interrupt[]).filter(({ metadata }) => !metadata?.inSubagent);
  return open.length === 0 ? undefined : { interrupts: open, suspension };
}
