/**
 * Settings: environment variables, read once, all problems reported in one message. Pure: the environment and a
 * reader of secret files come in, a frozen Config goes out. No schema library here: it would be loaded before the
 * daemon listens (see docs/adr/0001).
 */
import { isAbsolute, join, resolve } from "node:path";
import type { HarnessCapabilities } from "./harness/port.ts";
import { type NamedKey, parseKeyList } from "./key-list.ts";
import type { LogLevel } from "./log/port.ts";
import { LOG_LEVELS } from "./log/port.ts";
import { Secret } from "./secret.ts";
import { settingDefault } from "./settings.ts";

export type Env = Readonly<Record<string, string | undefined>>;

export interface Config {
  readonly dev: boolean;
  readonly token: Secret;
  readonly bootId: string;
  readonly version: string;
  readonly appRoot: string;
  readonly stateDir: string;
  readonly host: string;
  readonly port: number;
  readonly agentUser: { readonly uid: number; readonly gid: number } | null;
  readonly harness: {
    /** Null: the built-in one. */
    readonly runner: { readonly argv: readonly string[]; readonly capabilities: HarnessCapabilities } | null;
    readonly claudeCodePath: string | null;
    readonly claudeCodeModel: string | null;
    readonly claudeConfigDir: string;
    readonly startBudgetMs: number;
    readonly mcpPreflightAttempts: number;
    readonly mcpPreflightBaseMs: number;
  };
  /** What of the daemon's own environment a harness may see, already picked. */
  readonly runEnv: Readonly<Record<string, string>>;
  readonly org: {
    /** Where the sidecar says what is mounted. Null: there is no org volume. */
    readonly statusPath: string | null;
    /** Where the sidecar looks for what to mount. */
    readonly configPath: string | null;
    readonly readyBudgetMs: number;
    readonly retryEveryMs: number;
    /** How long what the mount took may be on its way to the backend. */
    readonly writeBackMs: number;
  };
  readonly session: {
    /** The first seals what is new. None: sessions lie open on the volume. */
    readonly keys: readonly NamedKey[];
    readonly ioBudgetMs: number;
    readonly checkpointMs: number;
    /** Where on the volume sessions of the older layout are looked for; null: nowhere. */
    readonly olderStore: string | null;
  };
  readonly suspension: {
    /** The first signs what is new. None: suspensions are not signed. */
    readonly keys: readonly NamedKey[];
    readonly ttlMs: number;
    /** Which daemons read each other's suspensions. */
    readonly audience: string;
  };
  readonly keepaliveMs: number;
  readonly readerStallMs: number;
  readonly detachGraceMs: number;
  readonly runRetentionMs: number;
  readonly takeoverTimeoutMs: number;
  readonly killGraceMs: number;
  readonly exitGraceMs: number;
  readonly eofGraceMs: number;
  readonly harnessStallMs: number;
  readonly runMaxMs: number;
  readonly maxRuns: number;
  readonly maxReaders: number;
  readonly maxBodyBytes: number;
  readonly maxFrameBytes: number;
  readonly runMaxBytes: number;
  readonly runLogBytes: number;
  readonly logLevel: LogLevel;
  readonly warnings: readonly string[];
}

/** What nobody may find in the environment of a running daemon, whether this version has a use for it or not. */
export const SECRET_SETTINGS = ["DAEMON_TOKEN", "SESSION_KEYS", "SUSPENSION_KEYS"] as const;

const DEFAULT_PORT = 9000;
const MAX_MS = 2 ** 31 - 1;
/** A suspension waits for no timer: a year. */
const MAX_SUSPENSION_MS = 366 * 86_400_000;
/*
 * No regular expressions on the way of every start: each takes 0.05 ms to compile, 1 % of a bare server's start.
 */

/** What Kubernetes puts into a pod's environment for every service, under names that may be ours. */
const SERVICE_LINKS = ["tcp://", "udp://", "sctp://"] as const;
const OF_THE_RUNTIME = "BUN_";
/** Of the allow-list and of a run's own variables, these never reach a harness. */
const NEVER_PASSED = [OF_THE_RUNTIME, "DAEMON_", "SUSPENSION_", "SESSION_"] as const;

export const NOT_BELOW_ORG = "must not be below APP_ROOT/org: it has to be on the pod's own disk";

export class ConfigError extends Error {
  constructor(readonly problems: readonly string[]) {
    super(`configuration: ${problems.join("; ")}`);
    this.name = "ConfigError";
  }
}

export interface ConfigSources {
  readonly env: Env;
  readonly version: string;
  readonly cwd: string;
  /** Contents of a file that a `NAME_FILE` variable names. Undefined when it cannot be read. */
  readonly readSecretFile: (path: string) => string | undefined;
  readonly randomId: () => string;
  /** Only for `serve --dev`: a folder of its own below the system's temporary one. */
  readonly devStateDir?: string;
}

/** True when a variable of this name may be handed to a harness. */
export function mayReachHarness(name: string): boolean {
  return !startsWithAny(name, NEVER_PASSED);
}

/** Reads and checks all settings. Throws one ConfigError that names every problem. */
export function loadConfig(sources: ConfigSources): Config {
  const { env } = sources;
  const dev = sources.devStateDir !== undefined;
  const problems: string[] = [];
  const warnings: string[] = [];

  const text = (...names: string[]): { name: string; value: string } | undefined => {
    for (const name of names) {
      const value = env[name];
      if (value === undefined || value === "") continue;
      if (startsWithAny(value, SERVICE_LINKS)) {
        warnings.push(`${name} is ignored: it looks like a Kubernetes service link`);
        continue;
      }
      return { name, value };
    }
    return undefined;
  };
  const integer = (names: readonly string[], fallback: number, min: number, max: number): number => {
    const found = text(...names);
    if (!found) return fallback;
    const value = isWithin(found.value, "0", "9") ? Number(found.value) : Number.NaN;
    if (value >= min && value <= max) return value;
    problems.push(`${found.name} must be a whole number from ${min} to ${max}, not "${found.value}"`);
    return fallback;
  };
  const ms = (name: string, fallback: number, min = 1): number => integer([name], fallback, min, MAX_MS);
  const bytes = (name: string, fallback: number, min: number): number => integer([name], fallback, min, 2 ** 40);
  const secret = (name: string): Secret | undefined => {
    const inline = env[name] || undefined;
    const file = env[`${name}_FILE`] || undefined;
    if (inline !== undefined && file !== undefined) {
      problems.push(`${name} and ${name}_FILE are both set`);
      return undefined;
    }
    if (file === undefined) return inline === undefined ? undefined : new Secret(inline);
    const value = sources.readSecretFile(file)?.trim();
    if (value === undefined) problems.push(`${name}_FILE cannot be read`);
    if (value === "") problems.push(`${name}_FILE names an empty file`);
    return value === undefined ? undefined : new Secret(value);
  };

  let token = secret("DAEMON_TOKEN");
  if (token?.reveal() && !isVisible(token.reveal())) {
    problems.push("DAEMON_TOKEN must be printable ASCII without spaces: it travels in a header");
  }
  if (token === undefined) {
    if (dev) token = new Secret(sources.randomId());
    else if (problems.length === 0) problems.push("DAEMON_TOKEN (or DAEMON_TOKEN_FILE) is required");
  }
  const bootId = text("DAEMON_BOOT_ID")?.value ?? sources.randomId();
  if (!isVisible(bootId) || bootId.length > 128) problems.push("DAEMON_BOOT_ID must be 1 to 128 printable characters");

  const appRoot = resolve(sources.cwd, text("APP_ROOT", "WORKDIR")?.value ?? ".");
  const stateDir = resolve(sources.cwd, text("STATE_DIR")?.value ?? sources.devStateDir ?? join(appRoot, ".dispatchd"));
  const orgRoot = join(appRoot, "org");
  const onOwnDisk = (name: string, path: string): void => {
    if (!`${path}/`.startsWith(`${orgRoot}/`)) return;
    problems.push(`${name} ${NOT_BELOW_ORG}`);
  };
  onOwnDisk("STATE_DIR", stateDir);
  const sidecarFile = (name: string): string | null => {
    const value = text(name)?.value;
    if (value === undefined) return null;
    const path = resolve(sources.cwd, value);
    onOwnDisk(name, path);
    return path;
  };

  const keyList = (name: string): { readonly keys: readonly NamedKey[]; readonly isGiven: boolean } => {
    const list = secret(name);
    const keys = list === undefined ? [] : parseKeyList(list.reveal());
    if (typeof keys !== "string") return { keys, isGiven: keys.length > 0 };
    problems.push(`${name}: ${keys}`);
    return { keys: [], isGiven: true };
  };
  const sessionKeys = keyList("SESSION_KEYS");
  const suspensionKeys = keyList("SUSPENSION_KEYS");
  const required = integer(["SUSPENSION_REQUIRED"], 0, 0, 1) === 1;
  if (!suspensionKeys.isGiven) {
    if (required) problems.push("SUSPENSION_KEYS (or SUSPENSION_KEYS_FILE) is required: SUSPENSION_REQUIRED is 1");
    else if (!dev) warnings.push("SUSPENSION_KEYS is not set: what a person is asked is not signed");
  }
  const audience = text("SUSPENSION_AUDIENCE")?.value ?? settingDefault("SUSPENSION_AUDIENCE");
  if (!isVisible(audience) || audience.length > 256) {
    problems.push("SUSPENSION_AUDIENCE must be 1 to 256 printable characters without spaces");
  }

  const home = env.HOME && isAbsolute(env.HOME) ? env.HOME : "/root";
  const claudeConfigDir = resolve(sources.cwd, text("CLAUDE_CONFIG_DIR")?.value ?? join(home, ".claude"));
  onOwnDisk("CLAUDE_CONFIG_DIR", claudeConfigDir);
  const runnerText = text("HARNESS_RUNNER_CMD");
  const runnerArgv = runnerText === undefined ? null : parseCommand(runnerText.value);
  if (runnerText !== undefined && runnerArgv === null) {
    problems.push("HARNESS_RUNNER_CMD must be a JSON array of texts, or words");
  }
  const capabilitiesText = text("HARNESS_CAPABILITIES");
  const capabilities = parseCapabilities(capabilitiesText?.value ?? "{}");
  if (typeof capabilities === "string") problems.push(`HARNESS_CAPABILITIES ${capabilities}`);
  if (capabilitiesText && !runnerText) problems.push("HARNESS_CAPABILITIES is set without HARNESS_RUNNER_CMD");

  const level = text("LOG_LEVEL")?.value ?? "info";
  if (!(LOG_LEVELS as readonly string[]).includes(level)) {
    problems.push(`LOG_LEVEL must be one of ${LOG_LEVELS.join(", ")}, not "${level}"`);
  }
  const agentUserText = text("AGENT_USER")?.value;
  const agentUser = agentUserText === undefined ? null : parseUser(agentUserText);
  if (agentUser === undefined) problems.push("AGENT_USER must be uid:gid, two numbers above 0");
  const allow = text("RUN_ENV_ALLOW")?.value.split(/[\s,]+/) ?? settingDefault("RUN_ENV_ALLOW").split(",");

  const maxFrameBytes = bytes("MAX_FRAME_BYTES", 16 << 20, 1024);
  const config: Config = {
    dev,
    token: token ?? new Secret(""),
    bootId,
    version: sources.version,
    appRoot,
    stateDir,
    host: text("DAEMON_HOST")?.value ?? (dev ? "127.0.0.1" : "::"),
    port: integer(["PROXY_PORT", "DAEMON_PORT", "PORT"], DEFAULT_PORT, 0, 65535),
    agentUser: agentUser ?? null,
    harness: {
      runner: runnerArgv === null || typeof capabilities === "string" ? null : { argv: runnerArgv, capabilities },
      claudeCodePath: text("CLAUDE_CODE_PATH")?.value ?? null,
      claudeCodeModel: text("CLAUDE_CODE_MODEL")?.value ?? null,
      claudeConfigDir,
      startBudgetMs: ms("HARNESS_START_BUDGET_MS", 60_000),
      mcpPreflightAttempts: integer(["MCP_PREFLIGHT_ATTEMPTS"], 8, 1, 100),
      mcpPreflightBaseMs: ms("MCP_PREFLIGHT_BASE_MS", 2000),
    },
    runEnv: pickEnv(env, allow.filter(Boolean)),
    org: {
      statusPath: sidecarFile("ORGFS_SIDECAR_STATUS_PATH"),
      configPath: sidecarFile("ORGFS_SIDECAR_CONFIG_PATH"),
      readyBudgetMs: ms("ORG_READY_BUDGET_MS", 90_000, 0),
      retryEveryMs: ms("ORG_RETRY_EVERY_MS", 15_000),
      writeBackMs: ms("ORG_WRITE_BACK_MS", 8000, 0),
    },
    session: {
      keys: sessionKeys.keys,
      ioBudgetMs: ms("SESSION_IO_BUDGET_MS", 30_000),
      checkpointMs: ms("CHECKPOINT_MS", 5000),
      olderStore: integer(["SESSION_LEGACY"], 1, 0, 1) === 1 ? "claude-sessions" : null,
    },
    suspension: {
      keys: suspensionKeys.keys,
      ttlMs: integer(["SUSPENSION_TTL_MS"], 86_400_000, 1, MAX_SUSPENSION_MS),
      audience,
    },
    keepaliveMs: ms("KEEPALIVE_MS", 15_000),
    readerStallMs: ms("READER_STALL_MS", 60_000),
    detachGraceMs: ms("DETACH_GRACE_MS", 180_000),
    runRetentionMs: ms("RUN_RETENTION_MS", 600_000),
    takeoverTimeoutMs: ms("TAKEOVER_TIMEOUT_MS", 10_000),
    killGraceMs: ms("KILL_GRACE_MS", 5000, 0),
    exitGraceMs: ms("EXIT_GRACE_MS", 5000, 0),
    eofGraceMs: ms("EOF_GRACE_MS", 2000, 0),
    harnessStallMs: ms("HARNESS_STALL_MS", 0, 0),
    runMaxMs: ms("RUN_MAX_MS", 0, 0),
    maxRuns: integer(["MAX_RUNS"], 16, 1, 10_000),
    maxReaders: integer(["MAX_READERS"], 64, 1, 10_000),
    maxBodyBytes: bytes("MAX_BODY_BYTES", 32 << 20, 1024),
    maxFrameBytes,
    runMaxBytes: bytes("RUN_MAX_BYTES", 512 << 20, maxFrameBytes),
    runLogBytes: bytes("RUN_LOG_BYTES", 1 << 30, 1 << 20),
    logLevel: level as LogLevel,
    warnings: Object.freeze([...warnings, ...runtimeWarnings(env)]),
  };
  if (problems.length > 0) throw new ConfigError(problems);
  return Object.freeze(config);
}

function runtimeWarnings(env: Env): string[] {
  const names = Object.keys(env).filter((name) => name.startsWith(OF_THE_RUNTIME));
  return names.map((name) => `${name} can change how this program runs`);
}

function startsWithAny(text: string, prefixes: readonly string[]): boolean {
  return prefixes.some((prefix) => text.startsWith(prefix));
}

/** Printable ASCII without spaces, one character at least. */
function isVisible(text: string): boolean {
  return isWithin(text, "!", "~");
}

/** True for a text of characters from `first` to `last`, one at least. */
function isWithin(text: string, first: string, last: string): boolean {
  for (const each of text) if (each < first || each > last) return false;
  return text !== "";
}

/** A command line as a JSON array, or as words parted by spaces. Null when it is neither. */
function parseCommand(text: string): readonly string[] | null {
  if (!text.trimStart().startsWith("[")) {
    const words = text.split(/\s+/).filter(Boolean);
    return words.length > 0 ? words : null;
  }
  const parsed = parseJson(text);
  const valid = Array.isArray(parsed) && parsed.length > 0 && parsed.every((part) => typeof part === "string");
  return valid && parsed[0] !== "" ? (parsed as string[]) : null;
}

/** Capabilities of a command harness; a text says what is wrong with them. */
function parseCapabilities(text: string): HarnessCapabilities | string {
  const parsed = parseJson(text) as Record<string, unknown> | null | undefined;
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return "must be a JSON object";
  const { resume = false, clientTools = "none", sessionFiles = null, ...unknown } = parsed;
  const names = Object.keys(unknown);
  if (names.length > 0) return `has unknown keys: ${names.join(", ")}`;
  if (typeof resume !== "boolean") return "resume must be true or false";
  if (clientTools !== "shim" && clientTools !== "native" && clientTools !== "none") {
    return `clientTools must be "shim", "native" or "none"`;
  }
  if (sessionFiles === null) return { resume, clientTools, sessionFiles };
  const { main, side } = sessionFiles as Record<string, unknown>;
  const isPattern = (value: unknown): value is string =>
    typeof value === "string" &&
    value.split("*").length <= 2 &&
    value.includes("<id>") &&
    !isAbsolute(value) &&
    !value.split("/").includes("..");
  if (!isPattern(main) || !isPattern(side))
    return `sessionFiles needs main and side, relative, with "<id>" and at most one "*"`;
  return { resume, clientTools, sessionFiles: { main, side } };
}

function parseUser(text: string): { uid: number; gid: number } | undefined {
  const match = /^([1-9]\d{0,9}):([1-9]\d{0,9})$/.exec(text);
  if (!match) return undefined;
  const [uid, gid] = [Number(match[1]), Number(match[2])];
  return uid < 2 ** 32 - 1 && gid < 2 ** 32 - 1 ? { uid, gid } : undefined;
}

function pickEnv(env: Env, patterns: readonly string[]): Record<string, string> {
  const names = new Set(patterns);
  const prefixes = patterns.filter((pattern) => pattern.endsWith("*")).map((pattern) => pattern.slice(0, -1));
  const picked: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    const allowed = names.has(name) || prefixes.some((prefix) => name.startsWith(prefix));
    if (allowed && value !== undefined && mayReachHarness(name)) picked[name] = value;
  }
  return picked;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
