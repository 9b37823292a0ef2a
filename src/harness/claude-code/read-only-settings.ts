/**
 * Settings of a read-only turn. Those of the checkout are read all the same, for their permissions and so on, so what
 * they start is overruled by ours, which rank above them: hooks, shells within skills, programs that give credentials,
 * and variables, through which any program can be another (`PATH`, `GIT_SSH_COMMAND`). The image's own stay in force.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Settings } from "@anthropic-ai/claude-agent-sdk/core";
import type { TurnDocument } from "../port.ts";

/** Settings that are a command each, which runs without a call of the model's. Empty, they are not there. */
const PROGRAMS = [
  "apiKeyHelper",
  "proxyAuthHelper",
  "awsAuthRefresh",
  "awsCredentialExport",
  "gcpAuthRefresh",
  "otelHeadersHelper",
] as const satisfies readonly (keyof Settings)[];

type Env = Readonly<Record<string, string>>;

/**
 * Writes them, with `others`, to a file of the run, and gives its path: on the command line every user of the machine
 * could read the variables. `env` is what Claude Code is started with.
 */
export function writeReadOnlySettings({ paths }: TurnDocument, env: Env, others: Settings): string {
  const image = readSettings(paths.configDir);
  const checkout = readSettings(join(paths.cwd, ".claude"));
  const programs = PROGRAMS.map((name) => [name, textOf(image[name])]);
  const imageEnv = recordOf(image.env);
  const names = ["PATH", ...Object.keys(recordOf(checkout.env))];
  const settings = {
    ...others,
    disableAllHooks: false,
    disableSkillShellExecution: true,
    ...Object.fromEntries(programs),
    env: Object.fromEntries(names.map((name) => [name, textOf(imageEnv[name] ?? env[name])])),
  };
  const path = join(paths.runDir, "read-only-settings.json");
  writeFileSync(path, JSON.stringify(settings), { mode: 0o600 });
  return path;
}

/** Nothing where there is no file, or none that Claude Code could read either. */
function readSettings(folder: string): Readonly<Record<string, unknown>> {
  try {
    return recordOf(JSON.parse(readFileSync(join(folder, "settings.json"), "utf8").replace(/^\uFEFF/, "")));
  } catch {
    return {};
  }
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
}

function textOf(value: unknown): string {
  return value === undefined || value === null ? "" : String(value);
}
