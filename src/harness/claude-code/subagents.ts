/**
 * Subagents, as a reader sees them: what they write is preliminary output of the call that started them. One that runs
 * in the background gives its call's output only when it ends, which may be many steps later.
 */
import type { Chunk } from "../../frames/frame.ts";
import { bounded } from "./tool-output.ts";

interface Subagent {
  text: string;
  background: boolean;
}

export class Subagents {
  /** By the id of the call of the main conversation that started it. */
  readonly #agents = new Map<string, Subagent>();
  /** Of every call inside a subagent, the call of the main conversation that it belongs to. */
  readonly #roots = new Map<string, string>();

  /** A call of the main conversation that was announced to the reader: it may turn out to start a subagent. */
  announce(toolCallId: string): void {
    this.#roots.set(toolCallId, toolCallId);
  }

  /** A call inside a subagent: what it starts in turn belongs to the same call of the main conversation. */
  nest(toolCallId: string, parentId: string): void {
    const root = this.#roots.get(parentId);
    if (root !== undefined) this.#roots.set(toolCallId, root);
  }

  says(parentId: string, text: string): Chunk[] {
    const root = this.#roots.get(parentId);
    if (root === undefined || text === "") return [];
    const agent = this.#agents.get(root) ?? { text: "", background: false };
    agent.text = bounded(agent.text === "" ? text : `${agent.text}\n\n${text}`);
    this.#agents.set(root, agent);
    return [output(root, agent.text, true)];
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
