/** Which chunks the tools of a run have to see before a reader does: as data, for the thread that reads large lines. */
import type { Chunk } from "./frame.ts";

export interface Interest {
  /** All of them, whatever they are. */
  readonly everything: boolean;
  readonly types: ReadonlySet<string>;
  /** Announcements of calls of these. */
  readonly tools: ReadonlySet<string>;
  /** Whatever is about these calls. */
  readonly calls: ReadonlySet<string>;
  /** The last word on these. */
  readonly subagents: ReadonlySet<string>;
}

export function concerns(interest: Interest, { type, toolCallId, toolName, preliminary }: Chunk): boolean {
  const { everything, types, tools, calls, subagents } = interest;
  return (
    everything ||
    types.has(type) ||
    calls.has(toolCallId as string) ||
    (type === "tool-input-available" && tools.has(toolName as string)) ||
    (preliminary !== true && subagents.has(String(toolCallId)))
  );
}
