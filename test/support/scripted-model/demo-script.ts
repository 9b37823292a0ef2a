/**
 * What the model says when nobody scripted it: enough to see a turn stream, a tool run where the message is about the
 * checkout, and that a second turn on the same thread knows of the first.
 */
import { isRecord, type ReceivedRequest, textOf, userTexts } from "./request.ts";
import { type ScriptedTurn, says, thinks } from "./turn.ts";

const QUOTE_CHARS = 120;
/** A tool of the demo's that a person answers, under whichever prefix it is offered. */
const CONNECT = /(^|__)connect_account$/;
const ABOUT_THE_CHECKOUT = /\b(checkout|repo|repository|files?|folder|look around)\b/i;

export function demoTurn(request: ReceivedRequest): ScriptedTurn {
  const said = userTexts(request);
  const latest = said.at(-1) ?? "";
  const earlier = said.slice(0, -1);
  const pace = { betweenDeltasMs: 12, deltaChars: 6, usage: { inputTokens: 40 * said.length, outputTokens: 60 } };
  if (request.kind === "subagent") return says("The subagent has nothing to add.", pace);

  const seen = latestToolResult(request);
  const connect = request.toolNames.find((name) => CONNECT.test(name));
  if (seen !== undefined && connect !== undefined) {
    return says(`The person answered, and the answer came as the result of my call: ${seen.trim()}`, pace);
  }
  if (connect !== undefined && /\bconnect\b/i.test(latest)) {
    return {
      ...pace,
      blocks: [
        { type: "text", text: "Only you can do that: I ask you." },
        { type: "tool_use", name: connect, input: { provider: "mail" } },
      ],
    };
  }
  if (seen !== undefined) return says(`This is what is there:\n\n${seen.trim()}\n`, pace);
  if (ABOUT_THE_CHECKOUT.test(latest) && request.toolNames.includes("Bash")) {
    const input = { command: "git log --oneline -5 2>/dev/null; ls", description: "Look at the checkout" };
    return {
      ...pace,
      blocks: [
        { type: "text", text: "I look at the checkout first." },
        { type: "tool_use", name: "Bash", input },
      ],
    };
  }
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

/** The result that the request brings, if it is there to bring one. */
function latestToolResult(request: ReceivedRequest): string | undefined {
  const content = request.messages.findLast((message) => message.role === "user")?.content;
  if (!Array.isArray(content)) return undefined;
  const result = content.find((block) => isRecord(block) && block.type === "tool_result");
  return isRecord(result) ? textOf(result.content) || "(nothing)" : undefined;
}

function quote(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length > QUOTE_CHARS ? `${line.slice(0, QUOTE_CHARS)}…` : line;
}
