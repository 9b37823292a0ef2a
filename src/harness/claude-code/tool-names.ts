/**
 * Names of tools. Readers of a run see canonical names, the same for every harness; Claude Code has its own, and puts
 * a prefix before those of MCP servers. Only the prefix of our own servers is taken off: a name of the checkout's or
 * the user's servers stays as it is, so that two of them cannot be mixed up.
 */

/** The MCP endpoint of the dispatch. */
export const ENDPOINT_SERVER = "platform";
/** The shim with the run's own tools. */
export const SHIM_SERVER = "tools";

const CANONICAL: Readonly<Record<string, string>> = {
  Agent: "agent",
  AskUserQuestion: "ask_user_question",
  Bash: "bash",
  BashOutput: "bash_output",
  Edit: "edit",
  EnterPlanMode: "enter_plan_mode",
  EnterWorktree: "enter_worktree",
  ExitPlanMode: "exit_plan_mode",
  ExitWorktree: "exit_worktree",
  Glob: "glob",
  Grep: "grep",
  KillShell: "kill_shell",
  ListMcpResourcesTool: "list_mcp_resources",
  LSP: "lsp",
  Monitor: "monitor",
  MultiEdit: "multi_edit",
  NotebookEdit: "notebook_edit",
  NotebookRead: "notebook_read",
  Read: "read",
  ReadMcpResourceTool: "read_mcp_resource",
  ReportFindings: "report_findings",
  SendMessage: "send_message",
  Skill: "skill",
  Task: "agent",
  TaskCreate: "task_create",
  TaskGet: "task_get",
  TaskList: "task_list",
  TaskOutput: "task_output",
  TaskStop: "task_stop",
  TaskUpdate: "task_update",
  TodoWrite: "todo_write",
  ToolSearch: "tool_search",
  WebFetch: "web_fetch",
  WebSearch: "web_search",
  Workflow: "workflow",
  Write: "write",
};

/** Tools that only read: the checkout, the web, or what was loaded before. */
export const READ_ONLY_TOOLS = [
  "Agent",
  "AskUserQuestion",
  "Glob",
  "Grep",
  "ListMcpResourcesTool",
  "LSP",
  "NotebookRead",
  "Read",
  "ReadMcpResourceTool",
  "ReportFindings",
  "Skill",
  "TaskStop",
  "TodoWrite",
  "ToolSearch",
  "WebFetch",
  "WebSearch",
] as const;

/** Tools that promise something for after the turn, when this process is gone, and so cannot keep it. */
export const OUTLIVING_TOOLS = ["CronCreate", "CronDelete", "CronList", "ScheduleWakeup"] as const;

export function canonicalToolName(name: string): string {
  const own = CANONICAL[name];
  if (own !== undefined) return own;
  for (const server of [ENDPOINT_SERVER, SHIM_SERVER]) {
    const prefix = `mcp__${server}__`;
    if (name.startsWith(prefix) && name.length > prefix.length) return name.slice(prefix.length);
  }
  return name;
}

/** Tools of Claude Code's own that ask the person something. */
export const OWN_QUESTIONS = ["AskUserQuestion", "ExitPlanMode"] as const;

export function isOwnQuestion(name: string): boolean {
  return OWN_QUESTIONS.some((own) => own === name);
}

/** True for a tool of the shim: the run's own tools, whose output somebody else gives. */
export function isShimTool(name: string): boolean {
  return name.startsWith(`mcp__${SHIM_SERVER}__`);
}

/**
 * What a name in `disallowedTools` means to Claude Code. A rule with arguments (`Bash(git push:*)`) keeps them. A name
 * that is no tool of Claude Code's may be one of ours, as a reader sees it: it is refused with each of our prefixes.
 */
export function claudeCodeToolRules(name: string): string[] {
  const [, base = name, rest = ""] = /^([^(]*)(\(.*)?$/s.exec(name) ?? [];
  const known = Object.keys(CANONICAL).filter((own) => own === base || CANONICAL[own] === base);
  if (known.length > 0) return known.map((own) => `${own}${rest}`);
  if (base.startsWith("mcp__")) return [name];
  return [name, ...[ENDPOINT_SERVER, SHIM_SERVER].map((server) => `mcp__${server}__${base}${rest}`)];
}
