/**
 * Nothing in the daemon's own process opens a path on the org volume: a call there may never return. What the source
 * can show of that is checked here; `who-touches` among the tests of orgfs watches who makes the calls.
 *
 * - The handlers of the worker's jobs, and whatever they use for files, are not loaded by the daemon.
 * - A module that is, and that knows where a volume is, has no call for files.
 */
import { expect, test } from "bun:test";
import { dirname, join, normalize } from "node:path";
import { Glob } from "bun";

const SRC = join(import.meta.dir, "../../src");

/** Its root, and what stands behind the ports that it is handed. */
const PARTS_OF_THE_DAEMON = [
  "serve.ts",
  "orgfs/supervisor.ts",
  "orgfs/org.ts",
  "orgfs/skills/skills.ts",
  "session/sessions.ts",
];

/** They touch the pod's own disk alone, for the daemon and for the worker. */
const LOCAL_DISK = new Set([
  "disk.ts",
  "agent-folder.ts",
  "process/native.ts",
  "session/disk-staging.ts",
  "session/disk-state-file.ts",
]);

const FILE_CALLS = /from "node:fs(\/promises)?"|from "chokidar"|import\("chokidar"\)|\bBun\.(file|write|spawn|\$)/;
const KNOWS_VOLUMES = /\b(mountPathOf|orgRootOf|orgRoot)\b|\(\w+, "org"[,)]|\/org\//;

interface Source {
  readonly text: string;
  /** Modules that it loads, at once or later. Types are no part of a program. */
  readonly loads: readonly string[];
}

async function sources(): Promise<ReadonlyMap<string, Source>> {
  const found = new Map<string, Source>();
  for await (const path of new Glob("**/*.ts").scan(SRC)) {
    const text = await Bun.file(join(SRC, path)).text();
    found.set(path, { text, loads: loadsOf(path, text) });
  }
  return found;
}

function loadsOf(path: string, text: string): string[] {
  const values = text.replace(/\b(?:import|export) type\b[^;]*;/g, "").replace(/\btypeof import\("[^"]*"\)/g, "");
  const specifiers = values.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)"(\.[^"]+)"/g);
  return [...specifiers].map((match) => normalize(join(dirname(path), match[1] ?? "")));
}

/** Everything that is loaded when the roots are. */
function closureOf(all: ReadonlyMap<string, Source>, roots: readonly string[]): Set<string> {
  const reached = new Set<string>();
  const open = [...roots];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (reached.has(path)) continue;
    reached.add(path);
    open.push(...(all.get(path)?.loads ?? []));
  }
  return reached;
}

function problems(all: ReadonlyMap<string, Source>): string[] {
  const daemon = closureOf(
    all,
    PARTS_OF_THE_DAEMON.filter((path) => all.has(path)),
  );
  const handlers = loadsOf("orgfs-worker.ts", all.get("orgfs-worker.ts")?.text.split("ORG_JOBS")[1] ?? "");
  const worker = closureOf(all, handlers);
  const found: string[] = [];
  for (const path of daemon) {
    const text = all.get(path)?.text ?? "";
    const callsFiles = FILE_CALLS.test(text);
    if (handlers.includes(path)) found.push(`${path}: the daemon loads a job's handler`);
    else if (callsFiles && worker.has(path) && !LOCAL_DISK.has(path))
      found.push(`${path}: files of a job, in the daemon`);
    if (callsFiles && KNOWS_VOLUMES.test(text)) found.push(`${path}: knows where a volume is, and calls for files`);
  }
  return found;
}

test("no code of the daemon can open a path on the org volume", async () => {
  const all = await sources();
  expect(loadsOf("orgfs-worker.ts", all.get("orgfs-worker.ts")?.text ?? "").length).toBeGreaterThan(3);
  expect(PARTS_OF_THE_DAEMON.filter((path) => !all.has(path))).toEqual([]);
  expect(closureOf(all, PARTS_OF_THE_DAEMON).size).toBeGreaterThan(50);
  expect(problems(all)).toEqual([]);
});

test("the rules see what they are for", () => {
  const program = (changed: Readonly<Record<string, string>>): string[] => {
    const texts = {
      "serve.ts": 'import { a } from "./a.ts";\nimport type { H } from "./handler.ts";',
      "a.ts": 'export const a = () => import("./late.ts");',
      "late.ts": "export const late = 1;",
      "orgfs-worker.ts": 'export const ORG_JOBS = { job: async () => (await import("./handler.ts")).job };',
      "handler.ts": 'import { read } from "./files.ts";\nimport { whole } from "./disk.ts";',
      "files.ts": 'import { open } from "node:fs/promises";',
      "disk.ts": 'import { open } from "node:fs/promises";',
      ...changed,
    };
    return problems(new Map(Object.entries(texts).map(([path, text]) => [path, { text, loads: loadsOf(path, text) }])));
  };
  expect(program({})).toEqual([]);
  expect(program({ "late.ts": 'import { whole } from "./disk.ts";' })).toEqual([]);
  expect(program({ "late.ts": 'import { job } from "./handler.ts";' })).toEqual([
    "handler.ts: the daemon loads a job's handler",
    "files.ts: files of a job, in the daemon",
  ]);
  expect(program({ "a.ts": 'import { read } from "./files.ts";' })).toEqual([
    "files.ts: files of a job, in the daemon",
  ]);
  const reads = 'import { readFile } from "node:fs/promises";\nreadFile(mountPathOf(appRoot, "home"));';
  expect(program({ "late.ts": reads })).toEqual(["late.ts: knows where a volume is, and calls for files"]);
  expect(program({ "late.ts": 'Bun.file(join(appRoot, "org", "home"))' })).toEqual([
    "late.ts: knows where a volume is, and calls for files",
  ]);
});
