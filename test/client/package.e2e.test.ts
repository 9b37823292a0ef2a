/** The package as a control plane has it: packed, unpacked, compiled against, and run on Node. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startFakeDaemon } from "../support/fake-daemon.ts";

const TIMEOUT_MS = 60_000;
const ROOT = join(import.meta.dir, "../..");

/** Types are asserted by the compiler: where one were `any`, an expected error would not come. */
const CONSUMER = `
import { answer, createClient, type Interrupt, RefusedError, type RunResult } from "dispatchd/client";

const [url = "", token = ""] = process.argv.slice(2);
const client = createClient({ url, token });
const deltas: string[] = [];
let result: RunResult;
{
  await using run = client.dispatch({ runId: "r", input: { threadId: "t", userMessage: "m" } });
  for await (const chunk of run) if (chunk.type === "text-delta") deltas.push(chunk.delta.toUpperCase());
  result = await run.result();
}
const tokens: number | undefined = result.type === "finished" ? result.usage?.inputTokens : undefined;
const [info] = await client.runs();
const state: "preparing" | "running" | "settling" | "ended" | undefined = info?.state;
// @ts-expect-error: no ending of that name
if (result.type === "nonsense") process.exit(9);
// @ts-expect-error: no chunk of that name
for await (const chunk of client.attach("r")) if (chunk.type === "nonsense") process.exit(9);
if (result.type === "interrupt") {
  const [first]: readonly Interrupt[] = result.interrupts;
  // @ts-expect-error: no reason of that name
  if (first?.reason === "nonsense") process.exit(9);
  client.resume(result, [answer(first ?? "", {})], { input: { threadId: "t" } }).detach();
}
// @ts-expect-error: a thread is required
client.dispatch({ runId: "other", input: {} }).detach();
const refused = await createClient({ url, token: "wrong" }).runs().catch((error: unknown) => error);
console.log(JSON.stringify({ deltas, tokens, state, refused: refused instanceof RefusedError && refused.code }));
`;

/** The oldest libraries that Node 20 asks for: what the declarations need beyond them they have to bring. */
const COMPILER_OPTIONS = {
  target: "ES2022",
  module: "nodenext",
  strict: true,
  exactOptionalPropertyTypes: true,
  outDir: "out",
};
const NODE = { ...COMPILER_OPTIONS, lib: ["ES2022"], types: ["node"] };
const WEB = { ...COMPILER_OPTIONS, lib: ["ES2022", "DOM", "DOM.Iterable", "DOM.AsyncIterable"], types: [] };

let folder = "";
let unpacked = "";

async function exec(...cmd: string[]): Promise<{ exit: number; out: string }> {
  const child = Bun.spawn({ cmd, cwd: folder, stdout: "pipe", stderr: "pipe" });
  const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  return { exit: await child.exited, out: out + err };
}

async function compile(options: Record<string, unknown>, files: readonly string[]) {
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: options, files }));
  return exec("node", join(ROOT, "node_modules/typescript/bin/tsc"), "--project", ".");
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "dispatchd-package-"));
  unpacked = join(folder, "node_modules/dispatchd");
  await mkdir(unpacked, { recursive: true });
  await mkdir(join(folder, "node_modules/@types"));
  for (const name of ["ai", "@types/node"]) {
    await symlink(join(ROOT, "node_modules", name), join(folder, "node_modules", name));
  }
  const packed = await exec("npm", "pack", ROOT, "--silent", "--cache", join(folder, "npm"));
  if (packed.exit !== 0) throw new Error(`npm pack: ${packed.out}`);
  const untar = await exec("tar", "-xzf", packed.out.trim(), "--strip-components=1", "-C", unpacked);
  if (untar.exit !== 0) throw new Error(`tar: ${untar.out}`);
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  await writeFile(join(folder, "main.ts"), CONSUMER);
}, TIMEOUT_MS);
afterAll(() => rm(folder, { recursive: true, force: true }));

test("holds the client and its types, and nothing of the daemon", async () => {
  const sources = (await readdir(unpacked, { recursive: true })).filter((name) => /\.[cm]?[jt]s$/.test(name));
  const types = sources.filter((name) => name.endsWith(".d.ts"));
  expect(types).toContain("dist/types/client/index.d.ts");
  expect(types.filter((name) => !/^dist\/types\/(client|clock|frames|errors)\b/.test(name))).toEqual([]);
  expect(sources.filter((name) => !types.includes(name))).toEqual(["dist/client.js"]);
});

test(
  "compiles in a strict project, and runs on Node 20 and later",
  async () => {
    expect(await compile({ ...NODE, skipLibCheck: true }, ["main.ts"])).toEqual({ exit: 0, out: "" });
    const daemon = await startFakeDaemon({ turn: (attempt) => attempt.whole("one", "two") });
    try {
      const { exit, out } = await exec("node", "out/main.js", daemon.url, daemon.token);
      expect({ exit, out }).toEqual({
        exit: 0,
        out: '{"deltas":["ONE","TWO"],"tokens":3,"state":"ended","refused":"unauthorized"}\n',
      });
    } finally {
      await daemon.stop();
    }
  },
  TIMEOUT_MS,
);

test.each([
  ["Node", NODE],
  ["the web's types alone", WEB],
])(
  "declares nothing that is not there: %s",
  async (_, options) => {
    await writeFile(join(folder, "types.ts"), 'export * from "dispatchd/client";\n');
    // Of the declarations of `ai` the libraries lack something; ours are to be without fault.
    const { out } = await compile({ ...options, skipLibCheck: false, noEmit: true }, ["types.ts"]);
    expect(out.split("\n").filter((line) => /^(node_modules\/dispatchd\/|types\.ts|error)/i.test(line))).toEqual([]);
  },
  TIMEOUT_MS,
);
