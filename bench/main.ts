/**
 * `bench/main.ts [NAME…] [--json FILE]`: measures the compiled daemon against the floors, prints a table, and the same
 * as JSON into a file, or to stdout for `--json -`. Exits with 1 when a bar is missed.
 */
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { coldStart } from "./cold-start.ts";
import { dispatchOverhead } from "./dispatch-overhead.ts";
import { health } from "./health.ts";
import type { Bench, BenchResult } from "./measure.ts";
import { realTurn } from "./real-turn.ts";
import { reattach } from "./reattach.ts";
import { sessions } from "./sessions.ts";
import { formatTable } from "./table.ts";
import { throughput } from "./throughput.ts";

const BENCHES: readonly Bench[] = [coldStart, dispatchOverhead, throughput, health, realTurn, reattach, sessions];

const { values, positionals } = parseArgs({
  args: process.argv.slice(2),
  options: { json: { type: "string" } },
  allowPositionals: true,
});
const unknown = positionals.filter((name) => !BENCHES.some((bench) => bench.name === name));
if (unknown.length > 0) {
  console.error(`no such bench: ${unknown.join(", ")}\n\n${BENCHES.map((b) => `${b.name}\t${b.about}`).join("\n")}`);
  process.exit(2);
}

const build = Bun.spawn({ cmd: ["sh", "scripts/build.sh"], cwd: `${import.meta.dir}/..`, stdout: "ignore" });
if ((await build.exited) !== 0) throw new Error("the daemon cannot be built");

const results: BenchResult[] = [];
const failed: string[] = [];
for (const bench of BENCHES) {
  if (positionals.length > 0 && !positionals.includes(bench.name)) continue;
  console.error(`${bench.name}: ${bench.about}`);
  try {
    results.push(await bench.run((text) => console.error(`  ${text}`)));
  } catch (error) {
    // What the others measured is still worth showing.
    failed.push(bench.name);
    console.error(error);
  }
}
const rows = results.flatMap((result) => result.rows);
const notes = results.flatMap((result) => result.notes ?? []);
const machine = { cores: cpus().length, cpu: cpus()[0]?.model ?? "unknown", bun: Bun.version };
const json = `${JSON.stringify({ machine, rows, notes, failed }, null, 2)}\n`;
if (values.json === "-") process.stdout.write(json);
else {
  console.log(`\n${formatTable(rows)}\n`);
  for (const note of notes) console.log(`- ${note}`);
  console.log(`\n${machine.cores} cores, ${machine.cpu}, Bun ${machine.bun}; medians (smallest to largest of n)`);
  if (values.json !== undefined) await Bun.write(values.json, json);
}
process.exitCode = failed.length > 0 || rows.some((row) => row.verdict?.met === false) ? 1 : 0;
