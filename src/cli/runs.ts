/** `runs`: what the daemon is doing and has done. */
import type { RunSummary } from "../client/index.ts";
import { defineCommand } from "./command.ts";
import { CONNECTION, CONNECTION_HELP, connect } from "./connect.ts";
import { EXIT } from "./exit-codes.ts";
import { safeLine } from "./safe-text.ts";

export const { main } = defineCommand({
  usage: "runs [options]",
  about: ["Lists the daemon's runs, the newest first."],
  options: {
    json: { type: "boolean", about: "one JSON object a line" },
    ...CONNECTION,
  },
  sections: {
    ...CONNECTION_HELP,
    "Exit codes": ["0    done", "2    usage", "4    the daemon cannot be reached", "5    the daemon refused"],
  },
  positionals: { min: 0, max: 0, name: "" },
  async run(values, _positionals, io) {
    const runs = [...(await (await connect(values, io)).runs())];
    runs.sort((a, b) => (a.startedAt < b.startedAt ? 1 : -1));
    if (values.json) await io.stdout.write(runs.map((run) => `${JSON.stringify(run)}\n`).join(""));
    else if (runs.length === 0) await io.stderr.write("no runs\n");
    else await io.stdout.write(table([HEADINGS, ...runs.map(row)]));
    return EXIT.ok;
  },
});

const HEADINGS = ["RUN", "THREAD", "STATE", "OUTCOME", "ATTEMPT", "SEQ", "READERS", "STARTED"];

function row({ runId, threadId, state, outcome, attempt, lastSeq, readers, startedAt }: RunSummary): string[] {
  const how = outcome?.type === "failed" ? outcome.error.code : (outcome?.type ?? "-");
  const facts = [runId, threadId, state, how].map((text) => safeLine(String(text), 48));
  return [...facts, String(attempt), String(lastSeq), String(readers), startedAt];
}

function table(rows: readonly (readonly string[])[]): string {
  const widths = HEADINGS.map((_, column) => Math.max(...rows.map((cells) => (cells[column] ?? "").length)));
  const line = (cells: readonly string[]): string => cells.map((cell, n) => cell.padEnd(widths[n] ?? 0)).join("  ");
  return rows.map((cells) => `${line(cells).trimEnd()}\n`).join("");
}
