/** The chunks of an outcome's frame: whatever ended a run, the reader is left with a whole message. */
import type { Chunk, Outcome, RunError } from "./frame.ts";
import type { OpenParts } from "./open-parts.ts";

/** Endings that somebody or something else chose; the rest are failures of the turn itself. */
const ABORTS: ReadonlySet<RunError["code"]> = new Set(["cancelled", "superseded", "sandbox_gone"]);

export function endOfMessage(parts: OpenParts, outcome: Outcome): Chunk[] {
  if (!parts.open) return [];
  switch (outcome.type) {
    case "finished":
      return [...parts.close("the turn ended before the tool did"), { type: "finish", finishReason: "stop" }];
    case "interrupt": {
      const parked = new Set(outcome.interrupts.map(({ toolCallId }) => toolCallId));
      const closing = parts.close("the turn ended before the tool did", parked);
      return [...closing, { type: "finish", finishReason: "tool-calls" }];
    }
    case "failed": {
      const { code, message } = outcome.error;
      const closing = parts.close(`the run ended: ${code}`);
      if (ABORTS.has(code)) return [...closing, { type: "abort", reason: code }];
      return [...closing, { type: "error", errorText: message }, { type: "finish", finishReason: "error" }];
    }
  }
}
