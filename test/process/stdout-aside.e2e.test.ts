/** stdout set aside: what a library prints goes to stderr, and only who has the descriptor writes to stdout. */
import { expect, test } from "bun:test";
import { join } from "node:path";

const NATIVE = join(import.meta.dir, "../../src/process/native.ts");

const SCRIPT = `
import { writeSync } from "node:fs";
import { setStdoutAside } from ${JSON.stringify(NATIVE)};
const descriptor = setStdoutAside();
console.log("one");
process.stdout.write("two\\n");
writeSync(1, "three\\n");
await Bun.write(Bun.stdout, "four\\n");
Bun.spawnSync(["sh", "-c", "echo five"], { stdout: "inherit" });
writeSync(descriptor, "protocol\\n");
`;

test("stdout that was set aside has only what is written to its descriptor", async () => {
  const child = Bun.spawn([process.execPath, "-e", SCRIPT], { stdout: "pipe", stderr: "pipe" });
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  expect(await child.exited).toBe(0);
  expect(out).toBe("protocol\n");
  expect(err.trim().split("\n").sort()).toEqual(["five", "four", "one", "three", "two"]);
});
