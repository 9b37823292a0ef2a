/** The client under Node 20, bundled: it may use nothing that only Bun has. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startFakeDaemon } from "../support/fake-daemon.ts";

/** Follows a run over a cut, is refused, leaves a run; prints what it saw. */
const SCRIPT = `
import { createClient, RefusedError } from "./client.mjs";
const [url, token] = process.argv.slice(2);
const client = createClient({ url, token, retryBaseMs: 1 });
const run = client.dispatch({ runId: "cut", input: { threadId: "t", userMessage: "m" } });
const deltas = [];
for await (const chunk of run) deltas.push(chunk.delta);
const left = client.dispatch({ runId: "left", input: { threadId: "t2", userMessage: "m" } });
for await (const chunk of left) break;
const refused = await createClient({ url, token: "wrong" }).runs().catch((error) => error instanceof RefusedError && error.code);
const health = await client.health({ nonce: "n" });
const gone = await createClient({ url: "http://127.0.0.1:1", token, connectForMs: 0 }).attach("r").result();
const [one, two] = [await run.result(), await left.result()];
console.log(JSON.stringify({ node: process.version, deltas, one: one.type, two: two.type, refused, boot: health.bootId, gone: gone.type }));
`;

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "dispatchd-node-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

test("runs on Node 20 and imports nothing", async () => {
  const node = Bun.which("node");
  if (!node) throw new Error("node is not installed: this test needs Node 20 or later");
  const entry = join(import.meta.dir, "../../src/client/index.ts");
  const built = await Bun.build({ entrypoints: [entry], target: "node", format: "esm" });
  await writeFile(join(folder, "client.mjs"), await (built.outputs[0] as Blob).text());
  await writeFile(join(folder, "script.mjs"), SCRIPT);
  const imports = (await readFile(join(folder, "client.mjs"), "utf8")).match(/^import .*$/gm) ?? [];
  expect(imports.every((line) => line.includes('"node:') || line.includes('"buffer"'))).toBe(true);

  const daemon = await startFakeDaemon({ turn: (attempt) => attempt.whole("a", "é\u2028", "🙂") });
  try {
    for (const bytes of [0, 100, 170, 290, 360]) {
      daemon.runs.clear();
      daemon.starts.length = 0;
      daemon.faults.push({ type: "cut", bytes });
      const child = Bun.spawn([node, "script.mjs", daemon.url, daemon.token], {
        cwd: folder,
        stdout: "pipe",
        stderr: "pipe",
      });
      const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
      expect({ bytes, exit: await child.exited, err }).toEqual({ bytes, exit: 0, err: "" });
      const { node: version, ...seen } = JSON.parse(out);
      expect(Number(/^v(\d+)/.exec(version)?.[1])).toBeGreaterThanOrEqual(20);
      expect(seen).toEqual({
        deltas: ["a", "é\u2028", "🙂"],
        one: "finished",
        two: "detached",
        refused: "unauthorized",
        boot: "boot-1",
        gone: "unreachable",
      });
      expect(daemon.starts).toEqual(["cut#1", "left#1"]);
    }
  } finally {
    await daemon.stop();
  }
});
