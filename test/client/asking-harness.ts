/**
 * A harness whose turn calls the run's tools through the shim, as its prompt lists them: `[{id, name, input}]`. It says
 * what comes of each call, and of each answer that it is started with.
 */
export interface AskedCall {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
}

export const ASKING_HARNESS = `
const { spawn } = require("node:child_process");
const { appendFileSync, readFileSync } = require("node:fs");
const { createInterface } = require("node:readline");
const turn = JSON.parse(readFileSync(0, "utf8"));
appendFileSync(__dirname + "/pids", process.pid + "\\n");
appendFileSync(__dirname + "/starts", turn.runId + "#" + turn.attempt + "\\n");
const say = (...chunks) => process.stdout.write(JSON.stringify({ chunks }) + "\\n");
let parts = 0;
const tell = (text) => {
  const id = "t" + parts++;
  say({ type: "text-start", id }, { type: "text-delta", id, delta: text }, { type: "text-end", id });
};
say({ type: "start", messageId: turn.runId }, { type: "start-step" });
for (const { toolName, text } of turn.answers) tell(toolName + " gave " + text + ". ");
const finish = () => say({ type: "finish-step" });
const message = turn.input.userMessage;
const calls = message === undefined ? [] : JSON.parse(message.parts?.[0]?.text ?? message);
if (calls.length === 0) finish();
else {
  const shim = spawn(turn.shim.command, turn.shim.args, { stdio: ["pipe", "pipe", "inherit"] });
  const send = (more) => shim.stdin.write(JSON.stringify({ jsonrpc: "2.0", ...more }) + "\\n");
  const clientInfo = { name: "asking", version: "0" };
  send({ id: "init", method: "initialize", params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo } });
  let open = calls.length;
  createInterface({ input: shim.stdout }).on("line", (line) => {
    const { id, result } = JSON.parse(line);
    if (id === "init") {
      send({ method: "notifications/initialized" });
      for (const { id: toolCallId, name, input } of calls) {
        say({ type: "tool-input-available", toolCallId, toolName: name, input, dynamic: true });
        const _meta = { "dispatchd/toolCallId": toolCallId };
        send({ id: toolCallId, method: "tools/call", params: { name, arguments: input, _meta } });
      }
      return;
    }
    if (!calls.some((call) => call.id === id)) return;
    if (!result._meta?.["dispatchd/endTurn"]) tell(id + " gave " + result.content[0].text + ". ");
    if (--open > 0) return;
    finish();
    shim.stdin.end();
  });
}
`;
