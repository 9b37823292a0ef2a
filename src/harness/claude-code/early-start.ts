/**
 * Starts Claude Code before the SDK that talks to it is loaded: the one takes 300 ms to be ready, the other 20 ms to
 * load, and a second core is there for it. Which command line the SDK will ask for is known, and compared when it asks:
 * if it wants another one, the early process is dropped and costs nothing but what it has cost.
 */
import type { Options, SpawnOptions } from "@anthropic-ai/claude-agent-sdk/core";
import { type CliProcess, spawnCli } from "./spawn-cli.ts";

export class EarlyStart {
  readonly #args: readonly string[];
  #process: CliProcess | undefined;

  constructor(
    options: Options,
    private readonly log: (line: string) => void,
  ) {
    this.#args = commandLine(options);
    this.#process = spawnCli(
      {
        command: options.pathToClaudeCodeExecutable ?? "",
        args: [...this.#args],
        ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
        env: { ...options.env, ...SDK_ENVIRONMENT },
        signal: new AbortController().signal,
      },
      log,
    );
  }

  /** The early process, the first time and if it is what is asked for; else a new one. */
  take(asked: SpawnOptions): CliProcess {
    const early = this.#process;
    this.#process = undefined;
    if (early && sameWords(asked.args, this.#args)) return early;
    if (early) {
      this.log("the SDK starts Claude Code with another command line than expected; the early start was in vain");
      void early.kill();
    }
    return spawnCli(asked, this.log);
  }

  /** Ends the early process if nobody took it, before it can write anything. */
  async drop(): Promise<void> {
    const early = this.#process;
    this.#process = undefined;
    await early?.kill();
  }
}

/** What the SDK adds to the environment that it is given. */
const SDK_ENVIRONMENT = { CLAUDE_CODE_ENTRYPOINT: "sdk-ts", CLAUDE_CODE_SDK_READS_SESSION_STATE: "1" } as const;

/** The SDK's command line for the options that this harness uses. */
export function commandLine(options: Options): string[] {
  const { thinking, settings, managedSettings } = options;
  const remote = Object.keys(options.mcpServers ?? {}).length > 0;
  const value = (flag: string, of: string | undefined): string[] => (of === undefined ? [] : [`${flag}=${of}`]);
  const list = (flag: string, of: readonly string[] | undefined): string[] =>
    of && of.length > 0 ? [`${flag}=${of.join(",")}`] : [];
  return [
    ...["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"],
    ...(thinking?.type === "adaptive" ? ["--thinking=adaptive", ...value("--thinking-display", thinking.display)] : []),
    ...value("--model", options.model),
    ...(options.canUseTool ? ["--permission-prompt-tool=stdio"] : []),
    ...value("--resume", options.resume),
    ...list("--allowedTools", options.allowedTools),
    ...list("--disallowedTools", options.disallowedTools),
    ...list("--tools", Array.isArray(options.tools) ? options.tools : undefined),
    ...list("--setting-sources", options.settingSources),
    ...value("--permission-mode", options.permissionMode),
    ...(options.allowDangerouslySkipPermissions ? ["--allow-dangerously-skip-permissions"] : []),
    ...value("--fallback-model", options.fallbackModel),
    ...(options.includePartialMessages ? ["--include-partial-messages"] : []),
    ...(remote ? ["--await-initialize"] : []),
    ...(options.strictMcpConfig ? ["--strict-mcp-config"] : []),
    ...(managedSettings ? ["--managed-settings", JSON.stringify(managedSettings)] : []),
    ...(options.plugins ?? []).flatMap(({ path }) => value("--plugin-dir", path)),
    ...(settings === undefined
      ? []
      : ["--settings", typeof settings === "string" ? settings : JSON.stringify(settings)]),
  ];
}

/** The order of flags has no meaning. */
function sameWords(one: readonly string[], other: readonly string[]): boolean {
  return [...one].sort().join("\0") === [...other].sort().join("\0");
}
