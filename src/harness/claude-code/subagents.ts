/**
 * Subagents, as a reader sees them: what they write is preliminary output of the call that started them. One that runs
 * in the background gives its call's output only when it ends, which may be many steps later. Their own calls are not
 * shown, except for those of the run's own tools: whoever answers these believes in no call that was not announced.
 */
import type { SDKAssistantMessage, SDKUserMessage } from "@anthropic-ai/claude-agent-sdk/core";
import type { Chunk } from "../../frames/frame.ts";
import { describeCall, resultChunk, resultsIn } from "./tool-chunks.ts";
import { isShimTool } from "./tool-names.ts";
import { bounded, textOfBlocks } from "./tool-output.ts";

interface Subagent {
  text: string;
  background: boolean;
}

export class Subagents {
  /** By the id of the call of the main conversation that started it. */
  readonly #agents = new Map<string, Subagent>();
  /** Of every call inside a subagent, the call of the main conversation that it belongs to. */
  readonly #roots = new Map<string, string>();
  /** Calls of the run's own tools that have no result yet: their names by their ids. */
  readonly #shimCalls = new Map<string, string>();

  /** A call of the main conversation that was announced to the reader: it may turn out to start a subagent. */
  announce(toolCallId: string): void {
    this.#roots.set(toolCallId, toolCallId);
  }

  /** What a subagent says, and calls. `parentId`: the call that started it. */
  answer(parentId: string, message: SDKAssistantMessage): Chunk[] {
    if (message.error !== undefined) return [];
    const root = this.#roots.get(parentId);
    const chunks: Chunk[] = [];
    for (const block of message.message.content) {
      if (block.type !== "tool_use") continue;
      // What it starts in turn belongs to the same call of the main conversation.
      if (root !== undefined) this.#roots.set(block.id, root);
      if (!isShimTool(block.name)) continue;
      this.#shimCalls.set(block.id, block.name);
      const providerMetadata = { dispatchd: { parentToolCallId: root ?? parentId } };
      const call = { ...describeCall(block.id, block.name), input: block.input };
      chunks.push({ type: "tool-input-available", ...call, providerMetadata });
    }
    const text = textOfBlocks(message.message.content);
    return root === undefined || text === "" ? chunks : [...chunks, this.#says(root, text)];
  }

  /** Results of calls inside a subagent. */
  results(message: SDKUserMessage): Chunk[] {
    return resultsIn(message).flatMap((result) => {
      const name = this.#shimCalls.get(result.tool_use_id);
      if (name === undefined) return [];
      this.#shimCalls.delete(result.tool_use_id);
      return [resultChunk(name, result, message)];
    });
  }

  #says(root: string, text: string): Chunk {
    const agent = this.#agents.get(root) ?? { text: "", background: false };
    agent.text = bounded(agent.text === "" ? text : `${agent.text}\n\n${text}`);
    this.#agents.set(root, agent);
    return output(root, agent.text, true);
  }

  /** The call returned, its subagent works on. The result itself is a notice that is meant for the model alone. */
  goesOnInBackground(toolCallId: string): Chunk[] {
    const agent = this.#agents.get(toolCallId) ?? { text: "", background: true };
    agent.background = true;
    this.#agents.set(toolCallId, agent);
    return [output(toolCallId, agent.text, true)];
  }

  /** A subagent in the background ended. `report` is its last word; without one, what it wrote stands. */
  ends(toolCallId: string, status: string, report: string): Chunk[] {
    const agent = this.#agents.get(toolCallId);
    if (!agent?.background) return [];
    this.#agents.delete(toolCallId);
    if (status === "completed") return [output(toolCallId, bounded(report) || agent.text, false)];
    const errorText = `the subagent ${status === "failed" ? "failed" : "was stopped"}${report ? `: ${bounded(report)}` : ""}`;
    return [{ type: "tool-output-error", toolCallId, errorText, providerExecuted: true, dynamic: true }];
  }

  /** The turn is over: what was written so far is all there will be. */
  endAll(): Chunk[] {
    return [...this.#agents].flatMap(([toolCallId, agent]) =>
      agent.background ? this.ends(toolCallId, "completed", agent.text) : [],
    );
  }
}

function output(toolCallId: string, text: string, preliminary: boolean): Chunk {
  const chunk = { type: "tool-output-available", toolCallId, output: text, providerExecuted: true, dynamic: true };
  return preliminary ? { ...chunk, preliminary: true } : chunk;
}
