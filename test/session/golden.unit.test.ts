/**
 * Stores that version 1 wrote, read by today's code and by a reader that knows docs/session-store.md and nothing of our
 * code. What is in `golden` is never written anew: a change that does not read it is another version.
 */
import { expect, test } from "bun:test";
import { createDecipheriv, createHash, createHmac, hkdfSync } from "node:crypto";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { zstdDecompressSync } from "node:zlib";
import { runRestoreJob } from "../../src/session/restore-job.ts";
import { FILES } from "./pod-disk.ts";

const THREAD = "golden thread";
const KEY = Buffer.from(Array.from({ length: 32 }, (_, n) => n));
const TRANSCRIPT = `{"type":"user","text":"hello"}\n${`{"filler":"${"x".repeat(300)}"}\n`.repeat(3)}{"type":"assistant","text":"grüß dich"}\n`;
const EXPECTED = { "projects/p/g1.jsonl": TRANSCRIPT, "projects/p/g1/tool-results/one.txt": "a result\n" };

interface Head {
  thread: string;
  session: string;
  saves: [string, number][];
  files: { path: string; segments: { save: number; at: number; length: number; size: number; hash: string }[] }[];
}

const sha256 = (bytes: Uint8Array | string): string => createHash("sha256").update(bytes).digest("hex");

/** By the page alone. */
async function readByThePage(store: string, key: Buffer | undefined): Promise<Record<string, string>> {
  const digest = key
    ? createHmac("sha256", key).update(`dispatchd session folder\0${THREAD}`).digest("hex")
    : sha256(THREAD);
  const folder = join(store, digest.slice(0, 2), digest.slice(2, 4), digest.slice(0, 40));
  const open = (bytes: Buffer, name: string, what: string): Buffer => {
    if (!key) return bytes;
    const threadKey = Buffer.from(hkdfSync("sha256", key, "", `dispatchd session key\0${THREAD}`, 32));
    const decipher = createDecipheriv("aes-256-gcm", threadKey, bytes.subarray(0, 12));
    decipher
      .setAAD(Buffer.from(`dispatchd session\0${THREAD}\0${1}\0${name}\0${what}`))
      .setAuthTag(bytes.subarray(-16));
    return Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()]);
  };
  const newest = (await readdir(folder)).sort().at(-1) ?? "";
  const file = await readFile(join(folder, newest));
  const line = file.subarray(0, file.indexOf(10)).toString();
  const [, version, kind, fileBytes, headBytes, headHash] = line.split(" ");
  expect([version, kind, Number(fileBytes)]).toEqual(["1", key ? "sealed" : "plain", file.length]);
  const head = file.subarray(line.length + 1, line.length + 1 + Number(headBytes));
  expect(sha256(head)).toBe(headHash ?? "");
  const { thread, session, saves, files } = JSON.parse(open(head, newest, "head").toString()) as Head;
  expect([thread, session]).toEqual([THREAD, "g1"]);
  const texts: Record<string, string> = {};
  for (const { path, segments } of files) {
    const pieces: Buffer[] = [];
    for (const { save, at, length, size, hash } of segments) {
      const holder = save === -1 ? newest : (saves[save]?.[0] ?? "");
      const bytes = await readFile(join(folder, holder));
      const begin = bytes.length - at;
      const text = zstdDecompressSync(open(bytes.subarray(begin, begin + length), holder, `${at}`));
      expect([text.length, sha256(text)]).toEqual([size, hash]);
      pieces.push(text);
    }
    texts[path] = Buffer.concat(pieces).toString();
  }
  return texts;
}

for (const [kind, keys] of [
  ["plain", []],
  ["sealed", [KEY]],
] as const) {
  const store = join(import.meta.dir, "golden", kind);

  test(`a ${kind} store is read by what its page says`, async () => {
    expect(await readByThePage(store, keys[0])).toEqual(EXPECTED);
  });

  test(`a ${kind} store of version 1 is restored`, async () => {
    const staging = await mkdtemp(join(tmpdir(), "dispatchd-golden-"));
    try {
      const { choice, restored } = await runRestoreJob({
        store,
        threadId: THREAD,
        keys: keys.map((key) => key.toString("base64")),
        staging,
        order: { harness: "h", sessionFiles: FILES, waitMs: 0 },
      });
      expect(choice).toMatchObject({ source: "stored", blind: false });
      const texts = await Promise.all(
        (restored?.files ?? []).map(async ({ path }, n) => [path, await readFile(join(staging, String(n)), "utf8")]),
      );
      expect(Object.fromEntries(texts)).toEqual(EXPECTED);
    } finally {
      await rm(staging, { recursive: true });
    }
  });
}
