/**
 * The environment of the Claude Code process: what the harness was given, without what steers the Bun runtime (Claude
 * Code is a Bun program too), and ours on top. Everything that talks to somewhere else than the model is off.
 */

type Env = Readonly<Record<string, string | undefined>>;

const OURS = {
  DISABLE_TELEMETRY: "1",
  DISABLE_ERROR_REPORTING: "1",
  DISABLE_AUTOUPDATER: "1",
  DISABLE_INSTALLATION_CHECKS: "1",
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  CLAUDE_CODE_DISABLE_TERMINAL_TITLE: "1",
  // Says why a start failed as a message, not only on stderr.
  CLAUDE_CODE_STARTUP_FAILURE_RESULTS: "1",
  // Says when the session is idle: after a result that background agents are still to follow.
  CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS: "1",
} as const;

export function cliEnvironment(env: Env, configDir: string): Record<string, string> {
  const built: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && !name.startsWith("BUN_")) built[name] = value;
  }
  // As root, Claude Code asks for this promise before it works without asking for permissions. A pod is one.
  built.IS_SANDBOX ??= "1";
  return { ...built, ...OURS, CLAUDE_CONFIG_DIR: configDir };
}

/** Values that must not appear in a message: credentials of the environment and of MCP headers. */
export function secretValues(env: Env, headers: Readonly<Record<string, string>> = {}): string[] {
  const named = Object.entries(env).flatMap(([name, value]) =>
    value !== undefined && /KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|AUTH/i.test(name) ? [value] : [],
  );
  const inHeaders = Object.values(headers).flatMap((value) => [value, value.replace(/^\w+\s+/, "")]);
  return [...named, ...inHeaders].filter((value) => value.length >= 8).sort((a, b) => b.length - a.length);
}

export function withoutSecrets(text: string, secrets: readonly string[]): string {
  return secrets.reduce((cleaned, secret) => cleaned.replaceAll(secret, "[secret]"), text);
}
