/** What Claude Code is started with for a turn. */
import type {
  HookCallbackMatcher,
  McpServerConfig,
  Options,
  SdkPluginConfig,
  Settings,
  SpawnedProcess,
  SpawnOptions,
} from "@anthropic-ai/claude-agent-sdk/core";
import type { QuestionCallbacks } from "./question-callbacks.ts";
import { type StartNotices, systemPromptAddition } from "./system-prompt.ts";
import { claudeCodeToolRules, ENDPOINT_SERVER, OUTLIVING_TOOLS, READ_ONLY_TOOLS, SHIM_SERVER } from "./tool-names.ts";
import { present, type TurnRequest } from "./turn-request.ts";

/** Whoever answers a call ends it in time; the limit of Claude Code's is for a shim that does not answer at all. */
const TIMEOUT_MARGIN_MS = 30_000;

export interface StartChoices extends StartNotices {
  readonly claudeCode: string;
  readonly env: Readonly<Record<string, string>>;
  /** The session to go on with. Without it Claude Code begins one under a new id. */
  readonly resume?: string;
  /** Highest in rank. A path: what they are is in that file. */
  readonly settings: Settings | string;
  readonly spawn: (options: SpawnOptions) => SpawnedProcess;
  /** Refuses what changes something; asked for every call of a read-only turn. */
  readonly readOnlyHook: HookCallbackMatcher;
  readonly questions: Pick<QuestionCallbacks, "hook" | "canUseTool">;
}

export function queryOptions(turn: TurnRequest, start: StartChoices): Options {
  const fallbackModel = turn.fallbackModels.length > 0 ? turn.fallbackModels.join(",") : undefined;
  return {
    pathToClaudeCodeExecutable: start.claudeCode,
    spawnClaudeCodeProcess: start.spawn,
    cwd: turn.document.paths.cwd,
    env: { ...start.env },
    ...present("resume", start.resume),
    ...present("model", turn.model),
    ...present("fallbackModel", fallbackModel),
    // Shown as text where the model can: otherwise reasoning arrives as a signature alone.
    thinking: { type: "adaptive", display: "summarized" },
    systemPrompt: {
      type: "preset",
      preset: "claude_code",
      append: systemPromptAddition(turn, start),
      // What is told for one turn must not be recorded and repeated in all later ones.
      snapshot: false,
    },
    includePartialMessages: true,
    forwardSubagentText: true,
    mcpServers: mcpServers(turn),
    // Headers would be on the command line otherwise, for every user of the machine to read.
    mcpServersDelivery: "initialize",
    // The checkout's and the image's settings, but not `settings.local.json`, which is one person's own.
    settingSources: ["user", "project"],
    settings: start.settings,
    // Servers of the checkout are programs that it starts, and say of themselves that they only read.
    ...(turn.readonly ? { strictMcpConfig: true } : {}),
    ...permissions(turn, start),
    // Plugins' skills are read whatever that setting below says.
    ...(start.withoutSkills ? {} : { plugins: plugins(turn) }),
    // The one setting that keeps Claude Code from reading skills: `--disable-slash-commands` reads them all the same.
    ...managed(turn, start),
  };
}

/** Ours, which overrule the checkout's and the image's. */
export function turnSettings(turn: TurnRequest): Settings {
  return {
    // Every shell of the agent can reach a socket through which text becomes a message of "another session".
    crossSessionInbound: "refuse",
    ...(turn.plan ? { useAutoModeDuringPlan: false } : {}),
  };
}

function managed(turn: TurnRequest, start: StartChoices): Pick<Options, "managedSettings"> {
  const settings = {
    ...(start.withoutSkills ? { strictPluginOnlyCustomization: ["skills" as const] } : {}),
    // Hooks of the checkout run whatever shell they name.
    ...(turn.readonly ? { allowManagedHooksOnly: true } : {}),
  };
  return Object.keys(settings).length > 0 ? { managedSettings: settings } : {};
}

function plugins(turn: TurnRequest): SdkPluginConfig[] {
  return turn.pluginDirs.map((path) => ({ type: "local", path }));
}

function mcpServers(turn: TurnRequest): Record<string, McpServerConfig> {
  const { shim } = turn.document;
  const servers: Record<string, McpServerConfig> = {};
  if (turn.mcp) servers[ENDPOINT_SERVER] = { type: turn.mcp.type, url: turn.mcp.url, headers: { ...turn.mcp.headers } };
  if (shim) {
    servers[SHIM_SERVER] = {
      ...{ type: "stdio", command: reachable(shim.command), args: [...shim.args], alwaysLoad: true },
      // Counted from the call on, and not extended by progress.
      timeout: shim.toolTimeoutMs + TIMEOUT_MARGIN_MS,
    };
  }
  return servers;
}

/**
 * The shim is this very program, and Claude Code starts it. Its path may lead through a folder that is closed to the agent's
 * user, or to another file by now; what this process runs stays reachable through it.
 */
function reachable(command: string): string {
  return command === process.execPath ? `/proc/${process.pid}/exe` : command;
}

/**
 * A pod is the sandbox, so by default nothing is asked. Nobody is there to answer in any mode; the agent's own questions
 * end the turn. Plan mode refuses by itself what changes something. A read-only turn offers only built-in tools that read,
 * and a hook refuses the tools of MCP servers that do not say that they only read.
 */
function permissions(turn: TurnRequest, { readOnlyHook, questions }: StartChoices): Partial<Options> {
  const disallowed = [...OUTLIVING_TOOLS, ...modeTools(turn), ...turn.disallowedTools.flatMap(claudeCodeToolRules)];
  const tools = [...READ_ONLY_TOOLS, ...(turn.plan ? ["ExitPlanMode"] : [])];
  const common: Partial<Options> = {
    canUseTool: questions.canUseTool,
    disallowedTools: disallowed,
    allowedTools: [`mcp__${SHIM_SERVER}`, `mcp__${ENDPOINT_SERVER}`],
    ...(turn.readonly ? { tools } : {}),
    hooks: { PreToolUse: [...(turn.readonly ? [readOnlyHook] : []), questions.hook] },
  };
  if (turn.plan) return { ...common, permissionMode: "plan" };
  if (turn.readonly) {
    const allowedTools = [...(common.allowedTools ?? []), ...READ_ONLY_TOOLS];
    return { ...common, permissionMode: "dontAsk", allowedTools };
  }
  return { ...common, permissionMode: "bypassPermissions", allowDangerouslySkipPermissions: true };
}

/** The mode of a turn is the dispatch's to choose: the agent cannot enter plan mode, and only plan mode can be left. */
function modeTools(turn: TurnRequest): string[] {
  return turn.plan ? ["EnterPlanMode"] : ["EnterPlanMode", "ExitPlanMode"];
}
