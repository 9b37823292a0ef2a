/**
 * Imports point down. Every import line of src is read, those of types too, and each arrow that points up, or goes past
 * a folder's port, is an error.
 */
import { expect, test } from "bun:test";
import { dirname, join, normalize } from "node:path";
import { Glob } from "bun";

const SRC = join(import.meta.dir, "../../src");

/** What puts the parts together: it may know all of them. */
const COMPOSITION = new Set(["main.ts", "serve.ts", "daemon.ts", "build-parts.ts", "orgfs-worker.ts"]);

/** Lower numbers are further down. A folder may import those below it, and itself. */
const LEVELS: Readonly<Record<string, number>> = {
  // Facts and tools that know nothing of a run.
  "errors.ts": 0,
  "secret.ts": 0,
  "settings.ts": 0,
  "random-hex.ts": 0,
  "pause-text.ts": 0,
  "canonical-json.ts": 0,
  "key-list.ts": 1,
  clock: 1,
  log: 2,
  "disk.ts": 2,
  "agent-folder.ts": 2,
  "follow-links.ts": 3,
  metrics: 3,
  // The wire, and what a harness is.
  frames: 4,
  harness: 5,
  "config.ts": 6,
  process: 7,
  orgfs: 7,
  session: 8,
  suspension: 7,
  tools: 8,
  dispatch: 9,
  http: 10,
  // Beside the daemon: what talks to it.
  client: 10,
  cli: 11,
};

/** Folders that are entered through their port.ts, and the pure parts of them that are open to all. */
const PORTS: Readonly<Record<string, readonly string[]>> = {
  clock: [],
  log: ["redact.ts"],
  metrics: [],
  harness: ["registry.ts"],
  process: [],
  orgfs: ["mount-request.ts"],
};

/** Adapters that a program of its own has to choose for itself, being no part of the daemon. */
const OWN_ROOTS: Readonly<Record<string, readonly string[]>> = {
  "client/client.ts": ["clock/system.ts"],
  "session/restore-job.ts": ["clock/system.ts"],
  "cli/process-io.ts": ["clock/system.ts"],
  "harness/registry.ts": ["config.ts"],
  "harness/claude-code/row.ts": ["config.ts"],
};

/** Names of harnesses, and where they may stand. */
const HARNESS_NAMES = /claude|anthropic/i;
const MAY_NAME_HARNESSES = /^(harness\/(claude-code\/|registry\.ts)|(config|settings|main)\.ts)/;

interface Arrow {
  readonly from: string;
  readonly to: string;
}

async function filesOfSrc(): Promise<ReadonlyMap<string, string>> {
  const files = new Map<string, string>();
  for await (const path of new Glob("**/*.ts").scan(SRC)) files.set(path, await Bun.file(join(SRC, path)).text());
  return files;
}

/** Static imports, re-exports, `import()` and `typeof import()`, as paths below src. */
function arrowsOf(from: string, text: string): Arrow[] {
  const specifiers = [...text.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)"(\.[^"]+)"/g)].map((match) => match[1] ?? "");
  return specifiers.map((specifier) => ({ from, to: normalize(join(dirname(from), specifier)) }));
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\/|(^|\s)\/\/.*$/gm, "");
}

function partOf(path: string): string {
  return path.split("/")[0] ?? path;
}

/** What is wrong with an arrow; undefined when nothing is. */
function problemOf({ from, to }: Arrow): string | undefined {
  if (to.startsWith("../") || COMPOSITION.has(from) || OWN_ROOTS[from]?.includes(to)) return undefined;
  const [source, target] = [partOf(from), partOf(to)];
  if (COMPOSITION.has(to)) return "nothing imports what puts the parts together";
  if (source === target) {
    const [one, other] = [from.split("/")[1], to.split("/")[1]];
    const twoHarnesses =
      source === "harness" && from.split("/").length > 2 && to.split("/").length > 2 && one !== other;
    return twoHarnesses ? "one harness imports another" : undefined;
  }
  const [above, below] = [LEVELS[source], LEVELS[target]];
  if (above === undefined) return `src/${source} has no level: give it one here`;
  if (below === undefined) return `src/${target} has no level: give it one here`;
  if (below >= above) return "points up";
  const open = PORTS[target];
  if (open && to !== `${target}/port.ts` && !open.includes(to.slice(target.length + 1))) return "goes past the port";
  return undefined;
}

test("no import points up, or goes past a port", async () => {
  const arrows = [...(await filesOfSrc())].flatMap(([path, text]) => arrowsOf(path, text));
  expect(arrows.length).toBeGreaterThan(200);
  const wrong = arrows.flatMap((arrow) => {
    const problem = problemOf(arrow);
    return problem ? [`${arrow.from} → ${arrow.to}: ${problem}`] : [];
  });
  expect(wrong).toEqual([]);
});

test("the rules see what they are for", () => {
  const problem = (from: string, to: string) => problemOf({ from, to });
  expect(problem("dispatch/run.ts", "http/server.ts")).toBe("points up");
  expect(problem("frames/frame.ts", "dispatch/run.ts")).toBe("points up");
  expect(problem("dispatch/run.ts", "process/run-processes.ts")).toBe("goes past the port");
  expect(problem("dispatch/run.ts", "harness/claude-code/main.ts")).toBe("goes past the port");
  expect(problem("harness/command/row.ts", "harness/claude-code/row.ts")).toBe("one harness imports another");
  expect(problem("http/router.ts", "daemon.ts")).toBe("nothing imports what puts the parts together");
  expect(problem("http/router.ts", "new-folder/x.ts")).toContain("has no level");
  expect(problem("dispatch/run.ts", "process/port.ts")).toBeUndefined();
  const lines = 'import type { A } from "./a.ts";\nexport { b } from "../b.ts";\nconst c = await import("./c.ts");\n';
  const types = 'type D = typeof import("./d.ts");\nimport "./e.ts";\nimport {\n  f,\n} from "./f.ts";\n';
  expect(arrowsOf("x/y.ts", lines + types).map(({ to }) => to)).toEqual([
    "x/a.ts",
    "b.ts",
    "x/c.ts",
    "x/d.ts",
    "x/e.ts",
    "x/f.ts",
  ]);
});

test("what is loaded before the daemon listens loads nothing that takes long", async () => {
  const files = await filesOfSrc();
  const loaded = new Set(["main.ts"]);
  const outside = new Set<string>();
  for (const path of loaded) {
    for (const specifier of valueImportsOf(files.get(path) ?? "")) {
      if (specifier.startsWith(".")) loaded.add(normalize(join(dirname(path), specifier)));
      else outside.add(specifier);
    }
  }
  expect([...loaded]).toContain("http/server.ts");
  // See docs/adr/0006.
  expect([...outside].sort()).toEqual(["bun:ffi", "node:path"]);
});

/** What is loaded with a file: no types, and nothing behind `import()`. */
function valueImportsOf(text: string): string[] {
  return [...text.matchAll(/^(?:import|export) (?!type\b)[^"'`;]*?from "([^"]+)"/gm)].map((match) => match[1] ?? "");
}

test("no part of the daemon names a harness", async () => {
  const named = [...(await filesOfSrc())].filter(
    ([path, text]) => !MAY_NAME_HARNESSES.test(path) && HARNESS_NAMES.test(text),
  );
  expect(named.map(([path]) => path)).toEqual([]);
});

test("only main.ts reads the process's environment and ends the process", async () => {
  const files = [...(await filesOfSrc())].filter(
    ([path, text]) => path !== "main.ts" && /process\.(env\b|exit\()|Bun\.env\b/.test(withoutComments(text)),
  );
  expect(files.map(([path]) => path)).toEqual([]);
});
