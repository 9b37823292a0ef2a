/** The binary's subcommands: which there are, and the one that is asked for. Each is loaded when it is needed. */
import { EXIT } from "./exit-codes.ts";
import type { CliIo, CommandModule } from "./io.ts";
import { UsageError } from "./io.ts";

export interface CommandRow {
  readonly summary: string;
  /** Not for people: left out of the help text. */
  readonly hidden?: true;
  readonly load: () => Promise<CommandModule>;
}

export type CommandTable = Readonly<Record<string, CommandRow>>;

/** The operator's hand. */
export const CLI_COMMANDS: CommandTable = {
  run: { summary: "dispatch a turn and watch it", load: () => import("./run.ts") },
  attach: { summary: "watch a run", load: () => import("./attach.ts") },
  cancel: { summary: "end a run", load: () => import("./cancel.ts") },
  runs: { summary: "list the runs of a daemon", load: () => import("./runs.ts") },
  sessions: { summary: "what a store of sessions holds", load: () => import("./sessions.ts") },
  suspension: { summary: "what a suspension holds, and whether it verifies", load: () => import("./suspension.ts") },
  logs: { summary: "make the daemon's log readable", load: () => import("./logs.ts") },
  probe: { summary: "exit 0 when /health answers in time", load: () => import("./probe.ts") },
};

/**
 * Runs the subcommand that `argv` names; resolves with the exit code. `fallback` is the one that is meant when none is
 * named: arguments that begin with `-` are its own. Throws only what is a fault of the program.
 */
export async function runCli(
  argv: readonly string[],
  io: CliIo,
  table: CommandTable = CLI_COMMANDS,
  fallback?: string,
): Promise<number> {
  const [first = "", ...rest] = argv;
  if (first === "--version") {
    await io.stdout.write(`${io.version}\n`);
    return EXIT.ok;
  }
  if (first === "--help" || first === "-h" || (first === "help" && rest.length === 0)) {
    await io.stdout.write(overview(table, fallback));
    return EXIT.ok;
  }
  if (first === "help") return runCli([...rest.slice(0, 1), "--help"], io, table, fallback);
  const isNamed = first !== "" && !first.startsWith("-");
  const name = isNamed ? first : fallback;
  const row = name !== undefined && Object.hasOwn(table, name) ? table[name] : undefined;
  if (name === undefined || row === undefined) {
    const problem = isNamed ? `there is no command "${first}"` : "a command is missing";
    return complain(io, `dispatchd: ${problem}\nTry "dispatchd --help".\n`);
  }
  const command = await row.load();
  try {
    return await command.main(isNamed ? rest : argv, io);
  } catch (thrown) {
    if (thrown instanceof UsageError) {
      return complain(io, `dispatchd ${name}: ${thrown.message}\nTry "dispatchd ${name} --help".\n`);
    }
    const code = exitCodeOf(thrown);
    if (code === undefined) throw thrown;
    await io.stderr.write(`dispatchd ${name}: ${(thrown as Error).message}\n`);
    return code;
  }
}

async function complain(io: CliIo, text: string): Promise<number> {
  await io.stderr.write(text);
  return EXIT.usage;
}

/** Of the client's errors; by name, since `probe` must not load the client for the sake of its classes. */
function exitCodeOf(thrown: unknown): number | undefined {
  switch (thrown instanceof Error ? thrown.name : undefined) {
    case "RefusedError":
    case "StaleError":
    case "EndedError":
      return EXIT.refused;
    case "UnreachableError":
    case "ProtocolError":
      return EXIT.lost;
    default:
      return undefined;
  }
}

function overview(table: CommandTable, fallback: string | undefined): string {
  const rows = Object.entries(table).filter(([, row]) => !row.hidden);
  const width = Math.max(...rows.map(([name]) => name.length));
  const lines = rows.map(([name, { summary }]) => {
    return `  ${name.padEnd(width)}  ${summary}${name === fallback ? " (when no command is given)" : ""}`;
  });
  return [
    "dispatchd runs the turns of a coding agent inside a sandbox pod.",
    "",
    "Usage: dispatchd [COMMAND] [options]",
    "",
    "Commands:",
    ...lines,
    "",
    '"dispatchd COMMAND --help" tells more, "dispatchd --version" the version.',
    "",
  ].join("\n");
}
