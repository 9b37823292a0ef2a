/**
 * What the harness understands of a turn document. The dispatch's input comes from outside and keeps unknown keys, so
 * it is read field by field, and what has another shape than expected counts as absent.
 *
 * Models: `input.models` is the name of a model, a list (the first is used, the others are fallbacks), or an object
 * `{main | default | primary | model, fallback}`. Where a name stands, `{id}` or `{model}` may stand too. Without any,
 * the pod's `CLAUDE_CODE_MODEL`, then Claude Code's own choice.
 */
import type { TurnDocument } from "../port.ts";
import { TurnFailure } from "./turn-failure.ts";

export interface McpEndpoint {
  readonly type: "http" | "sse";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds since the epoch, when its credentials end. */
  readonly expiresAtMs?: number;
}

export interface HarnessSettings {
  readonly claudeCodePath: string | null;
  readonly startBudgetMs: number;
  readonly mcpPreflightAttempts: number;
  readonly mcpPreflightBaseMs: number;
}

export interface TurnRequest {
  readonly document: TurnDocument;
  readonly settings: HarnessSettings;
  /** Names the message of this attempt: one run's attempts must not be merged by a reader. */
  readonly messageId: string;
  readonly instructions?: string;
  readonly disallowedTools: readonly string[];
  readonly plan: boolean;
  readonly readonly: boolean;
  readonly model?: string;
  readonly fallbackModels: readonly string[];
  readonly mcp?: McpEndpoint;
  /** Why an earlier attempt at this work was cut off by infrastructure, if one was. */
  readonly cutOffReason?: string;
  /** Folders of skills, each a local plugin. */
  readonly pluginDirs: readonly string[];
  /** What of the organization's skills is missing. */
  readonly skillsMissing?: string;
  readonly facts: TurnFacts;
  /** What was asked for and changes nothing, in words for the operator. */
  readonly ignored: readonly string[];
}

/** What the model is told about where it works and for whom. */
export interface TurnFacts {
  readonly repo?: string;
  readonly branch?: string;
  readonly user?: string;
  readonly organization?: string;
}

const READ_ONLY_LEVELS: ReadonlySet<string> = new Set(["readonly", "read-only", "read_only"]);

/** Throws TurnFailure when stdin is no turn document. */
export function readTurnRequest(stdin: string): TurnRequest {
  const document = parseDocument(stdin);
  const { input } = document;
  const agent = record(input.agent);
  const workspace = record(input.workspace);
  const models = readModels(input.models);
  const settings = readSettings(document.settings);
  // Claude Code refuses to start with a fallback that is the model itself.
  const [model = settings.model, ...fallbackModels] = [...new Set(models)];
  const mcp = readEndpoint(input.mcp);
  const cutOffReason = readCutOff(input.resume);
  const skills = record(document.skills);
  return {
    document,
    settings,
    messageId: `${document.runId}:${document.attempt}`,
    ...present("instructions", text(agent.instructions)),
    disallowedTools: Array.isArray(agent.disallowedTools)
      ? agent.disallowedTools.flatMap((name) => text(name) ?? [])
      : [],
    plan: input.mode === "plan",
    readonly: isReadOnly(input.toolApprovalLevel),
    ignored: ignoredIn(input),
    ...present("model", model),
    fallbackModels,
    ...present("mcp", mcp),
    ...present("cutOffReason", cutOffReason),
    pluginDirs: Array.isArray(skills.pluginDirs) ? skills.pluginDirs.flatMap((dir) => text(dir) ?? []) : [],
    ...present("skillsMissing", text(skills.missing)),
    facts: {
      ...present("repo", nameOf(workspace.repo, ["fullName", "full_name", "name", "url"])),
      ...present("branch", nameOf(workspace.branch, ["name"])),
      ...present("user", describeUser(input.user)),
      ...present("organization", text(input.organizationId)),
    },
  };
}

function isReadOnly(level: unknown): boolean {
  return READ_ONLY_LEVELS.has(String(level).toLowerCase());
}

/** A level or a mode of another control plane is no reason to refuse a turn; but who meant to restrict it has to hear. */
function ignoredIn({ mode, toolApprovalLevel }: TurnDocument["input"]): string[] {
  return [
    ...(text(mode) && mode !== "plan" ? [`mode ${JSON.stringify(mode)} is not known, and changes nothing`] : []),
    ...(text(toolApprovalLevel) && !isReadOnly(toolApprovalLevel)
      ? [`toolApprovalLevel ${JSON.stringify(toolApprovalLevel)} restricts nothing`]
      : []),
  ];
}

function parseDocument(stdin: string): TurnDocument {
  let parsed: unknown;
  try {
    parsed = JSON.parse(stdin);
  } catch {
    throw new TurnFailure("turn_failed", "the harness got no turn document: stdin is not JSON");
  }
  const document = record(parsed);
  const paths = record(document.paths);
  const complete =
    typeof document.runId === "string" &&
    typeof document.attempt === "number" &&
    isRecord(document.input) &&
    isRecord(document.settings) &&
    isRecord(document.session) &&
    ["appRoot", "cwd", "configDir", "runDir"].every((name) => typeof paths[name] === "string");
  if (!complete) throw new TurnFailure("turn_failed", "the harness got no turn document: fields are missing");
  return parsed as TurnDocument;
}

function readSettings(settings: Readonly<Record<string, unknown>>): HarnessSettings & { model: string | undefined } {
  const positive = (value: unknown, fallback: number): number =>
    typeof value === "number" && value > 0 ? value : fallback;
  return {
    claudeCodePath: text(settings.claudeCodePath) ?? null,
    model: text(settings.model),
    startBudgetMs: positive(settings.startBudgetMs, 60_000),
    mcpPreflightAttempts: positive(settings.mcpPreflightAttempts, 8),
    mcpPreflightBaseMs: positive(settings.mcpPreflightBaseMs, 2000),
  };
}

function readModels(models: unknown): string[] {
  const one = (value: unknown): string[] => [nameOf(value, ["id", "model", "name"]) ?? []].flat();
  if (Array.isArray(models)) return models.flatMap(one);
  if (!isRecord(models)) return one(models);
  const main = [models.main, models.default, models.primary, models.model].flatMap(one)[0];
  const fallback = Array.isArray(models.fallback) ? models.fallback.flatMap(one) : one(models.fallback);
  return main === undefined ? one(models) : [main, ...fallback];
}

function readEndpoint(mcp: unknown): McpEndpoint | undefined {
  const { url, headers, type, transport, expiresAt } = record(mcp);
  if (typeof url !== "string" || url === "") return undefined;
  const expiresAtMs = readInstant(expiresAt);
  return {
    type: type === "sse" || transport === "sse" ? "sse" : "http",
    url,
    headers: readHeaders(headers),
    ...present("expiresAtMs", expiresAtMs),
  };
}

function readHeaders(headers: unknown): Record<string, string> {
  const read: Record<string, string> = {};
  for (const [name, value] of Object.entries(record(headers))) if (typeof value === "string") read[name] = value;
  return read;
}

/** ISO 8601, or a number of seconds or milliseconds since the epoch. */
function readInstant(value: unknown): number | undefined {
  if (typeof value === "number" && value > 0) return value < 1e11 ? value * 1000 : value;
  const parsed = typeof value === "string" ? Date.parse(value) : Number.NaN;
  return Number.isFinite(parsed) ? parsed : undefined;
}

function readCutOff(resume: unknown): string | undefined {
  if (!isRecord(resume)) return undefined;
  return text(resume.reason) ?? "unknown";
}

function describeUser(user: unknown): string | undefined {
  if (typeof user === "string") return text(user);
  const { name, email, id } = record(user);
  const named = [text(name), text(email) && `<${text(email)}>`].filter(Boolean).join(" ");
  return named || text(id);
}

function nameOf(value: unknown, keys: readonly string[]): string | undefined {
  if (!isRecord(value)) return text(value);
  for (const key of keys) {
    const found = text(value[key]);
    if (found) return found;
  }
  return undefined;
}

/** A text that is not blank. */
function text(value: unknown): string | undefined {
  return typeof value === "string" && value.trim() !== "" ? value : undefined;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function record(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

/** A property that is left out where it has no value: `exactOptionalPropertyTypes` knows no `undefined`. */
export function present<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return (value === undefined ? {} : { [key]: value }) as { [P in K]?: V };
}
