/** `logs`: the daemon's JSON lines, made readable. A filter, so it works on `kubectl logs -f` as on a file. */
import { LOG_LEVELS, type LogLevel } from "../log/port.ts";
import { defineCommand } from "./command.ts";
import { EXIT } from "./exit-codes.ts";
import { type CliIo, UsageError } from "./io.ts";
import { safeText } from "./safe-text.ts";
import { type Style, styleOf } from "./style.ts";

export const { main } = defineCommand({
  usage: "logs [options] [FILE]",
  about: [
    "Turns the daemon's JSON lines, from FILE or from stdin, into something to read.",
    "Lines that are no JSON (a crash, another program) are passed through whatever is asked for.",
    "Example: kubectl logs -f POD | dispatchd logs --level warn",
  ],
  options: {
    level: { type: "string", value: "LEVEL", about: `only this and above: ${LOG_LEVELS.join(", ")}` },
    run: { type: "string", value: "RUN_ID", about: "only what concerns this run" },
  },
  sections: { "Exit codes": ["0    done", "2    usage"] },
  positionals: { min: 0, max: 1, name: "FILE" },
  async run(values, [file], io) {
    const level = values.level ?? "debug";
    if (!isLevel(level)) throw new UsageError(`--level must be one of ${LOG_LEVELS.join(", ")}, not "${level}"`);
    const style = styleOf(io.stdout, io.env);
    try {
      for await (const line of linesOf(file === undefined || file === "-" ? io.stdin : io.readFile(file))) {
        if (io.stdout.closed.aborted) return EXIT.brokenPipe;
        await io.stdout.write(readable(line, { level, run: values.run }, style));
      }
    } catch (thrown) {
      if (file === undefined) throw thrown;
      throw new UsageError(`${file} cannot be read: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    }
    return EXIT.ok;
  },
});

interface Filter {
  readonly level: LogLevel;
  readonly run: string | undefined;
}

/** The line as it is printed; "" when it is filtered out. */
function readable(line: string, filter: Filter, style: Style): string {
  const found = parse(line);
  if (!found) return `${safeText(line)}\n`;
  const { prefix, record } = found;
  const { time, level, event, stack, ...fields } = record;
  if (isLevel(level) && LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(filter.level)) return "";
  if (filter.run !== undefined && fields.run !== filter.run) return "";
  const parts = [
    style.dim(typeof time === "string" ? time.replace("T", " ").replace("Z", "") : "-"),
    painted(typeof level === "string" ? level : "-", style),
    style.bold(safeText(String(event))),
    ...Object.entries(fields).map(([name, value]) => `${style.dim(`${safeText(name)}=`)}${show(value)}`),
  ];
  const trace = typeof stack === "string" ? `${indent(safeText(stack))}\n` : "";
  return `${safeText(prefix)}${parts.join(" ")}\n${trace}`;
}

/** A record, also behind what `kubectl logs --timestamps --prefix` puts in front of it. */
function parse(line: string): { prefix: string; record: Record<string, unknown> } | undefined {
  const brace = line.indexOf("{");
  if (brace < 0) return undefined;
  try {
    const record: unknown = JSON.parse(line.slice(brace));
    const isEvent =
      typeof record === "object" && record !== null && typeof (record as { event?: unknown }).event === "string";
    return isEvent ? { prefix: line.slice(0, brace), record: record as Record<string, unknown> } : undefined;
  } catch {
    return undefined; // No JSON: it is passed through.
  }
}

function painted(level: string, style: Style): string {
  const text = safeText(level).toUpperCase().padEnd(5);
  if (level === "error") return style.red(text);
  if (level === "warn") return style.yellow(text);
  return level === "debug" ? style.dim(text) : text;
}

function show(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  // Quoted where it would run into its neighbours, or hides something.
  return /^[^\s"=]+$/.test(text) && safeText(text) === text ? text : safeText(JSON.stringify(value));
}

function indent(text: string): string {
  return text.replace(/^/gm, "    ");
}

function isLevel(value: unknown): value is LogLevel {
  return (LOG_LEVELS as readonly unknown[]).includes(value);
}

async function* linesOf(source: CliIo["stdin"]): AsyncGenerator<string, void> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of source) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
  rest += decoder.decode();
  if (rest !== "") yield rest;
}
