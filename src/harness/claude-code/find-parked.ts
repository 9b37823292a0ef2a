/** What a session says of calls that an earlier run parked. */
import { sameJson } from "../../canonical-json.ts";
import type { ParkedCall, ParkedState } from "../port.ts";
import { openTranscript } from "./open-transcript.ts";
import { isOpen, readParkedCalls, type TranscriptCall } from "./parked-calls.ts";

export async function findParked(
  session: { readonly configDir: string; readonly id: string },
  calls: readonly ParkedCall[],
): Promise<ReadonlyMap<string, ParkedState>> {
  const states = new Map<string, ParkedState>(calls.map(({ toolCallId }) => [toolCallId, "absent"]));
  await using transcript = await openTranscript(session.configDir, session.id);
  if (!transcript) return states;
  const found = (await readParkedCalls(transcript, new Set(states.keys()), true)).calls;
  for (const asked of calls) {
    const call = found.get(asked.toolCallId);
    if (call && isSame(call, asked)) states.set(asked.toolCallId, isOpen(call) ? "open" : "answered");
  }
  return states;
}

/** Claude Code completes the input of its own questions before it asks: it is this one that waits. */
export function isSame(call: TranscriptCall, asked: ParkedCall): boolean {
  if (call.toolName !== asked.toolName) return false;
  if (call.deferred && !(call.deferred.toolName === asked.toolName && sameJson(call.deferred.input, asked.input))) {
    return false;
  }
  return call.deferred !== undefined || sameJson(call.input, asked.input);
}
