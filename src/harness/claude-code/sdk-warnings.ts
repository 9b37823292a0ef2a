/**
 * The agent SDK warns, on the stderr of every turn, that permissions are bypassed and the callback for them is not asked.
 * It is there for the agent's own questions, which Claude Code offers for no other sign, and for which it is asked.
 */
const KNOWN = "CLAUDE_SDK_CAN_USE_TOOL_SHADOWED";

export function passOverKnownWarnings(host: Pick<NodeJS.Process, "emitWarning">): void {
  const emit = host.emitWarning.bind(host) as (...args: readonly unknown[]) => void;
  host.emitWarning = (...args: readonly unknown[]): void => {
    if (!args.some((arg) => (arg as { code?: unknown } | undefined)?.code === KNOWN)) emit(...args);
  };
}
