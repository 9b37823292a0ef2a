/**
 * What the model says when nobody scripted it: enough to see a turn stream, and that a second turn on the same thread
 * knows of the first.
 */
import { type ReceivedRequest, userTexts } from "./request.ts";
import { type ScriptedTurn, says, thinks } from "./turn.ts";

const QUOTE_CHARS = 120;

export function demoTurn(request: ReceivedRequest): ScriptedTurn {
  const said = userTexts(request);
  const latest = said.at(-1) ?? "";
  const earlier = said.slice(0, -1);
  const pace = { betweenDeltasMs: 12, deltaChars: 6, usage: { inputTokens: 40 * said.length, outputTokens: 60 } };
  if (request.kind === "subagent") return says("The subagent has nothing to add.", pace);
  if (earlier.length === 0) {
    return thinks(
      "A first message: answer it, and say where this answer comes from.",
      `Hello from the scripted model. You wrote: "${quote(latest)}". No credential is set, so this text came over ` +
        "loopback; the agent around it, its session and its tools are the real ones.",
      pace,
    );
  }
  const list = earlier.map((text, index) => `${index + 1}. "${quote(text)}"`).join("\n");
  const count = earlier.length === 1 ? "one earlier message" : `${earlier.length} earlier messages`;
  return says(
    `This conversation goes on: I can see ${count} of yours:\n${list}\nNow you wrote: "${quote(latest)}".`,
    pace,
  );
}

function quote(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length > QUOTE_CHARS ? `${line.slice(0, QUOTE_CHARS)}…` : line;
}
