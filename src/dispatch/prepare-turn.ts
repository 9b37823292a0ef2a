/**
 * What a turn gets before its harness starts: its folders, its environment, and the document that goes to stdin.
 */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { Config } from "../config.ts";
import { mayReachHarness } from "../config.ts";
import { fileNameOf } from "../disk.ts";
import { DaemonError } from "../errors.ts";
import type { Harness, TurnDocument } from "../harness/port.ts";
import type { RunSkills } from "../orgfs/port.ts";
import { randomHex } from "../random-hex.ts";
import type { FoundSession } from "../session/port.ts";
import { giveFolder } from "./give-folder.ts";
import type { DispatchInput } from "./input.ts";
import type { Attempt, AttemptOrder } from "./run.ts";
import type { StateDir } from "./state-dir.ts";

export interface Folders {
  readonly cwd: string;
  readonly runDir: string;
}

/** Makes the folders of a run. Those that the harness needs belong to its user. */
export async function makeFolders(
  input: DispatchInput,
  config: Config,
  state: StateDir,
  harness: Harness,
): Promise<Folders> {
  const repo = join(config.appRoot, "repo");
  const hasRepo = await stat(repo).then(
    (found) => found.isDirectory(),
    () => false,
  );
  const asked = input.workspace?.cwd;
  if (asked === "/repo" && !hasRepo) {
    throw new DaemonError("turn_failed", "input.workspace.cwd is /repo, but there is no checkout on this pod");
  }
  const cwd = asked !== null && hasRepo ? repo : join(state.agentThreads, fileNameOf(input.threadId));
  if (cwd !== repo) await giveFolder(cwd, config.agentUser);
  if (harness.capabilities.sessionFiles) await giveFolder(harness.configDir, config.agentUser);
  // Last: what fails before it leaves nothing to clear away.
  const runDir = join(state.agentRuns, randomHex(16));
  await giveFolder(runDir, config.agentUser);
  return { cwd, runDir };
}

export interface RunEnvSources {
  readonly config: Config;
  /** What `POST /config` gave. */
  readonly configured: Readonly<Record<string, string>>;
  readonly input: DispatchInput;
  readonly attempt: Attempt;
  readonly traceparent: string | undefined;
}

/** The harness's whole environment, later sources over earlier ones, without what must never reach it. */
export function buildEnv({ config, configured, input, attempt, traceparent }: RunEnvSources): Record<string, string> {
  const ours = {
    DISPATCHD_RUN_ID: attempt.run.id,
    DISPATCHD_ATTEMPT: String(attempt.number),
    ...(traceparent ? { TRACEPARENT: traceparent } : {}),
  };
  const env: Record<string, string> = { ...config.runEnv, ...configured, ...input.env, ...ours };
  for (const name of Object.keys(env)) if (!mayReachHarness(name)) delete env[name];
  return env;
}

/** The values of a run that must not show in logs and messages. */
export function secretsOf(input: DispatchInput, configured: Readonly<Record<string, string>>): string[] {
  const callback = (input as { callback?: { url?: unknown; headers?: unknown } }).callback;
  const values = [
    ...Object.values(configured),
    ...Object.values(input.env ?? {}),
    // Their addresses as well, if there are credentials in them.
    input.mcp?.url,
    callback?.url,
    ...Object.values(input.mcp?.headers ?? {}),
    ...Object.values((callback?.headers ?? {}) as Record<string, unknown>),
  ];
  const texts = values.filter((value): value is string => typeof value === "string" && !isPlace(value));
  // A header's secret is told as often without its scheme.
  return texts.flatMap((text) => (/^bearer /i.test(text) ? [text, text.slice("bearer ".length)] : [text]));
}

/** A path or an address without credentials is no secret, and hiding it would hide the reason of a failure. */
function isPlace(value: string): boolean {
  // Lower case, as paths mostly are: one base64 text in 64 begins with a slash.
  return /^(\/[a-z0-9._-]+)+\/?$/.test(value) || /^https?:\/\/[^@?#]*$/.test(value);
}

export interface DocumentParts {
  readonly attempt: Attempt;
  readonly order: AttemptOrder;
  readonly harness: Harness;
  readonly folders: Folders;
  readonly found: FoundSession;
  readonly skills: RunSkills | undefined;
  readonly appRoot: string;
  readonly shim: TurnDocument["shim"];
  readonly answers: TurnDocument["answers"];
}

export function buildDocument(parts: DocumentParts): TurnDocument {
  const { attempt, order, harness, folders, found, skills, appRoot, shim, answers } = parts;
  const { callback: _callback, env: _env, suspension: _suspension, answers: _answers, ...rest } = order.input;
  // The suspension is in these as well.
  const { interrupts: _interrupts, approvals: _approvals, ...shown } = rest;
  const { id, state, reason } = found;
  // The turn goes on as what it was: a plan is not carried out because somebody left the word out.
  const mode = order.input.mode || order.resume?.suspension.mode;
  return {
    runId: attempt.run.id,
    attempt: attempt.number,
    input: { ...shown, ...(mode ? { mode } : {}) },
    paths: { appRoot, cwd: folders.cwd, configDir: harness.configDir, runDir: folders.runDir },
    settings: harness.settings,
    session: { ...(id === undefined ? {} : { id }), state, ...(reason ? { reason } : {}) },
    ...(skills
      ? { skills: { pluginDirs: skills.pluginDirs, ...(skills.missing ? { missing: skills.missing } : {}) } }
      : {}),
    shim,
    answers,
  };
}
