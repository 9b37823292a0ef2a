/**
 * A run for people. The agent's text goes to stdout as it comes, and can be piped; thoughts, tools and what happened
 * go to stderr. Both may be one terminal: whoever writes after the other begins a new line. A tool's line stays open
 * for its result as long as nothing else is printed.
 */
import type { Frame, Preparation, RunResult, Waiting } from "../client/index.ts";
import { describeInput, describeName, describeOutput } from "./describe-tool.ts";
import { SafeText, safeLine } from "./safe-text.ts";
import type { Style } from "./style.ts";

export interface Piece {
  readonly to: "stdout" | "stderr";
  readonly text: string;
}

export interface PrettyOptions {
  /** Of stderr; stdout carries plain text. */
  readonly style: Style;
  readonly columns: number;
  /** Milliseconds since the run was asked for. */
  readonly elapsedMs: () => number;
  /** Questions are put to somebody, by others: they are not printed. */
  readonly asks?: boolean;
}

interface Part {
  readonly kind: "text" | "reasoning";
  readonly safe: SafeText;
}

export class PrettyFrames {
  readonly #parts = new Map<unknown, Part>();
  readonly #tools = new Map<unknown, string>();
  readonly #pieces: Piece[] = [];
  /** Whose line is not ended: a part, or a tool's call. */
  #open: { readonly to: Piece["to"]; readonly of: unknown } | undefined;
  #firstTextMs: number | undefined;
  #frames = 0;

  constructor(private readonly options: PrettyOptions) {}

  /** Where the run can be found again. */
  started(runId: string, attempt: number, threadId: string | undefined): Piece[] {
    const thread = threadId === undefined ? "" : ` · thread ${safeLine(threadId, 120)}`;
    const nth = attempt > 1 ? ` · attempt ${attempt}` : "";
    return this.note(this.options.style.dim(`run ${safeLine(runId, 256)}${nth}${thread}`));
  }

  /** Ends the line: somebody else writes now. */
  pause(): Piece[] {
    this.#endLine();
    return this.#take();
  }

  /** A line of ours. */
  note(text: string): Piece[] {
    this.#line(text);
    return this.#take();
  }

  frame(frame: Frame): Piece[] {
    this.#frames++;
    if (frame.preparation) this.#preparation(frame.preparation);
    for (const chunk of frame.chunks) this.#chunk(chunk);
    if (frame.waiting && !this.options.asks) this.#waiting(frame.waiting);
    return this.#take();
  }

  /** The last line: how it ended and what it took. */
  finished(result: RunResult): Piece[] {
    const { style } = this.options;
    if (result.type === "interrupt" && !this.options.asks) {
      for (const interrupt of result.interrupts) this.#question(interrupt);
    }
    const facts = [
      headline(result, style),
      seconds(this.options.elapsedMs()),
      ...(this.#firstTextMs === undefined ? [] : [`first text ${seconds(this.#firstTextMs)}`]),
      ...usage(result),
      ...saved(result),
      count(this.#frames, "frame"),
    ];
    this.#line(facts.join(" · "));
    return this.#take();
  }

  #chunk(chunk: { readonly type: string; readonly [key: string]: unknown }): void {
    switch (chunk.type) {
      case "text-start":
      case "reasoning-start":
        this.#parts.set(chunk.id, { kind: chunk.type === "text-start" ? "text" : "reasoning", safe: new SafeText() });
        break;
      case "text-delta":
      case "reasoning-delta":
        if (typeof chunk.delta === "string") this.#delta(chunk.id, chunk.type, chunk.delta);
        break;
      case "text-end":
      case "reasoning-end":
        if (this.#open !== undefined && this.#open.of === this.#parts.get(chunk.id)) this.#endLine();
        this.#parts.delete(chunk.id);
        break;
      case "tool-input-available":
      case "tool-input-error":
        this.#call(chunk.toolCallId, chunk.toolName, chunk.input);
        break;
      case "tool-output-available":
        if (chunk.preliminary !== true) this.#result(chunk.toolCallId, describeOutput(chunk.output, this.#width()));
        break;
      case "tool-output-error": {
        const text = describeOutput(chunk.errorText, this.#width());
        this.#result(chunk.toolCallId, this.options.style.red(`failed: ${text}`));
        break;
      }
      case "tool-output-denied":
        this.#result(chunk.toolCallId, this.options.style.yellow("denied"));
        break;
    }
  }

  #delta(id: unknown, type: string, delta: string): void {
    const kind = type === "text-delta" ? "text" : "reasoning";
    const part = this.#parts.get(id) ?? { kind, safe: new SafeText() };
    this.#parts.set(id, part);
    const text = part.safe.push(delta);
    if (text === "") return;
    if (this.#open?.of !== part) {
      this.#endLine();
      if (kind === "reasoning" && !this.options.style.coloured)
        this.#pieces.push({ to: "stderr", text: "(thinking) " });
    }
    if (kind === "text") {
      this.#firstTextMs ??= this.options.elapsedMs();
      this.#pieces.push({ to: "stdout", text });
    } else {
      this.#pieces.push({ to: "stderr", text: this.options.style.dim(text) });
    }
    this.#open = text.endsWith("\n") ? undefined : { to: kind === "text" ? "stdout" : "stderr", of: part };
  }

  #call(toolCallId: unknown, toolName: unknown, input: unknown): void {
    const name = describeName(toolName);
    const already = this.#tools.has(toolCallId);
    this.#tools.set(toolCallId, name);
    if (already) return;
    this.#endLine();
    const what = describeInput(input, this.#width());
    const line = `${this.options.style.bold(`→ ${name}`)}${what === "" ? "" : ` ${what}`}`;
    this.#pieces.push({ to: "stderr", text: line });
    this.#open = { to: "stderr", of: toolCallId };
  }

  #result(toolCallId: unknown, text: string): void {
    const name = this.#tools.get(toolCallId) ?? "tool";
    if (this.#open !== undefined && this.#open.of === toolCallId) {
      this.#pieces.push({ to: "stderr", text: `  ${this.options.style.dim("⇒")} ${text}\n` });
      this.#open = undefined;
    } else {
      this.#line(`${this.options.style.dim(`⇒ ${name}`)} ${text}`);
    }
  }

  #preparation({ home, skills, session, waitedMs, reason }: Preparation): void {
    const { style } = this.options;
    const missing = Object.entries({ "org volume": home, skills }).filter(([, state]) => /timeout|failed/.test(state));
    for (const [what, state] of missing) this.#line(style.yellow(`without the ${what}: ${state}`));
    if (session === "stale-session") {
      this.#line(style.yellow(`without the thread's history${reason ? `: ${safeLine(reason, 300)}` : ""}`));
    } else if (session !== "fresh") {
      this.#line(style.dim(`the conversation goes on (session ${session})`));
    }
    if (waitedMs >= 1000) this.#line(style.dim(`prepared in ${seconds(waitedMs)}`));
  }

  #waiting({ interrupts, until }: Waiting): void {
    if (interrupts.length === 0) return;
    for (const interrupt of interrupts) this.#question(interrupt);
    this.#line(
      this.options.style.yellow(`waiting for ${count(interrupts.length, "answer")}, until ${safeLine(until, 40)}`),
    );
  }

  #question(interrupt: unknown): void {
    const { id, reason, message, metadata } = (interrupt ?? {}) as Record<string, unknown>;
    const { toolName, input } = (metadata ?? {}) as Record<string, unknown>;
    const text = typeof message === "string" ? safeLine(message, 500) : describeInput(input, this.#width());
    const who = toolName === undefined ? safeLine(String(reason ?? "question"), 80) : describeName(toolName);
    this.#line(this.options.style.yellow(`? ${who}${text === "" ? "" : `: ${text}`} [${safeLine(String(id), 80)}]`));
  }

  #line(text: string): void {
    this.#endLine();
    this.#pieces.push({ to: "stderr", text: `${text}\n` });
  }

  #endLine(): void {
    if (this.#open) this.#pieces.push({ to: this.#open.to, text: "\n" });
    this.#open = undefined;
  }

  /** For a call and for its result: both fit into a line. */
  #width(): number {
    return Math.max(20, Math.floor(this.options.columns / 2) - 8);
  }

  #take(): Piece[] {
    return this.#pieces.splice(0);
  }
}

function headline(result: RunResult, style: Style): string {
  const says = (text: string): string => safeLine(text, 1000);
  switch (result.type) {
    case "finished":
      return style.green("finished");
    case "interrupt":
      return style.yellow(`waits for ${count(result.interrupts.length, "answer")}`);
    case "cancelled":
    case "superseded":
      return style.yellow(`${result.type}: ${says(result.message)}`);
    case "gone":
      return style.red(`gone (${result.reason}): ${says(result.message)}`);
    case "crashed":
    case "failed":
      return style.red(`${result.type} (${says(result.code)}): ${says(result.message)}`);
    case "unreachable":
      return style.red(`unreachable: ${says(result.message)}`);
    case "refused":
      return style.red(says(result.message));
    case "detached":
      return style.yellow("left; the run goes on");
  }
}

function usage({ usage: used }: RunResult): string[] {
  if (!used) return [];
  const { inputTokens = 0, outputTokens = 0, cacheReadTokens = 0, cacheWriteTokens = 0, costUsd } = used;
  const read = inputTokens + cacheReadTokens + cacheWriteTokens;
  const tokens = `${grouped(read)} tokens in, ${grouped(outputTokens)} out`;
  return costUsd === undefined ? [tokens] : [tokens, `$${costUsd.toFixed(4)}`];
}

function saved({ settled }: RunResult): string[] {
  if (!settled) return [];
  if (settled.saved) return ["saved"];
  return [settled.reason ? `not saved (${safeLine(settled.reason, 200)})` : "not saved"];
}

function count(n: number, what: string): string {
  return `${grouped(n)} ${what}${n === 1 ? "" : "s"}`;
}

function grouped(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ",");
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}
