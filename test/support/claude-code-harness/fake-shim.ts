/**
 * An MCP server on stdio that plays the run's shim: `fake-shim.ts <log file> <JSON of FakeTools>`. Every call is a line
 * of the log file, so that a test sees what was asked for, and when.
 */
import { appendFileSync, existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { pauseText } from "../../../src/pause-text.ts";
import { longText } from "./long-text.ts";

/** What becomes of each call of a tool, by its name. */
export type FakeTools = Readonly<Record<string, FakeAnswer>>;

export type FakeAnswer = { readonly delayMs?: number; readonly notReadOnly?: boolean } & (
  | { readonly type: "pause" }
  | { readonly type: "text"; readonly text: string }
  /** A text of this many characters, made here: a command line is too short for it. */
  | { readonly type: "long"; readonly chars: number }
  | { readonly type: "failure"; readonly text: string }
  /** Answered with `text` once the file is there; progress is sent until then. */
  | { readonly type: "hold"; readonly file: string; readonly text: string }
);

export interface FakeCall {
  readonly tool: string;
  readonly args: unknown;
  readonly meta: Readonly<Record<string, unknown>>;
  readonly atMs: number;
}

interface Rpc {
  readonly id?: number | string;
  readonly method: string;
  readonly params?: {
    readonly name?: string;
    readonly arguments?: unknown;
    readonly protocolVersion?: string;
    readonly _meta?: Readonly<Record<string, unknown>>;
  };
}

const [logFile = "", toolsJson = "{}"] = process.argv.slice(2);
const tools = JSON.parse(toolsJson) as FakeTools;

function send(message: object): void {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function list(): object {
  return {
    tools: Object.entries(tools).map(([name, answer]) => ({
      name,
      description: `The tool ${name}.`,
      inputSchema: { type: "object", properties: {}, additionalProperties: true },
      annotations: { readOnlyHint: answer.notReadOnly !== true },
      _meta: { "anthropic/maxResultSizeChars": 1_000_000 },
    })),
  };
}

async function call(rpc: Rpc): Promise<object> {
  const name = rpc.params?.name ?? "";
  const meta = rpc.params?._meta ?? {};
  const line: FakeCall = { tool: name, args: rpc.params?.arguments, meta, atMs: Date.now() };
  appendFileSync(logFile, `${JSON.stringify(line)}\n`);
  const answer = tools[name];
  if (!answer) return { content: [{ type: "text", text: `no tool ${name}` }], isError: true };
  await Bun.sleep(answer.delayMs ?? 0);
  switch (answer.type) {
    case "pause":
      return { content: [{ type: "text", text: pauseText(name) }], _meta: { "claude/endTurn": true } };
    case "text":
      return { content: [{ type: "text", text: answer.text }] };
    case "long":
      return { content: [{ type: "text", text: longText(answer.chars) }] };
    case "failure":
      return { content: [{ type: "text", text: answer.text }], isError: true };
    case "hold":
      for (let progress = 1; !existsSync(answer.file); progress += 1) {
        const token = meta.progressToken;
        if (token !== undefined) {
          send({ method: "notifications/progress", params: { progressToken: token, progress } });
        }
        await Bun.sleep(50);
      }
      return { content: [{ type: "text", text: answer.text }] };
  }
}

async function answer(rpc: Rpc): Promise<object | undefined> {
  switch (rpc.method) {
    case "initialize":
      return {
        protocolVersion: rpc.params?.protocolVersion ?? "2025-06-18",
        capabilities: { tools: {} },
        serverInfo: { name: "tools", version: "1" },
      };
    case "tools/list":
      return list();
    case "tools/call":
      return call(rpc);
    case "ping":
      return {};
    default:
      return undefined;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const rpc = JSON.parse(line) as Rpc;
  if (rpc.id === undefined) continue;
  void answer(rpc).then((result) =>
    send({ id: rpc.id, ...(result ? { result } : { error: { code: -32601, message: "method not found" } }) }),
  );
}
