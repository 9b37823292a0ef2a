/** README, `.env.example` and the program agree on which settings there are, and on their defaults. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { loadConfig } from "../../src/config.ts";
import { SETTINGS } from "../../src/settings.ts";

const ROOT = join(import.meta.dir, "../..");
const read = (name: string): Promise<string> => Bun.file(join(ROOT, name)).text();

/** Defaults that are words: what they stand for depends on where the daemon starts. */
const WORDS = new Set(["required", "random", "working directory", "none", "built-in", "found"]);

test("the README's table has every setting, its default and what it is, and no other", async () => {
  const section = (await read("README.md")).split("## Settings")[1]?.split("\n## ")[0] ?? "";
  const rows = [...section.matchAll(/^\| `([A-Z_]+)` \| (.*?) \| (.*) \|$/gm)].map(([, name, fallback, about]) => ({
    name,
    fallback: fallback?.replaceAll("`", "").replaceAll(", ", ","),
    about,
  }));
  const expected = SETTINGS.map(({ name, fallback, about }) => ({ name, fallback, about }));
  expect(rows as unknown).toEqual(expected);
});

test(".env.example has every setting with its default, and no other", async () => {
  const lines = [...(await read(".env.example")).matchAll(/^# (.*)\n#?([A-Z_]+)=(.*)$/gm)];
  const expected = SETTINGS.map(({ name, fallback, about }) => [
    name,
    WORDS.has(fallback) || /[<$]/.test(fallback) ? "" : fallback,
    about,
  ]);
  expect(lines.map(([, about, name, value]) => [name, value, about]) as unknown).toEqual(expected);
});

test("the defaults that are told are those that hold", () => {
  const sources = { version: "0", cwd: "/here", readSecretFile: () => "", randomId: () => "random" };
  const told = SETTINGS.filter(({ fallback }) => !WORDS.has(fallback) && !/[<$]/.test(fallback));
  // Means nothing without a program.
  const env = Object.fromEntries(
    told.filter(({ name }) => name !== "HARNESS_CAPABILITIES").map((s) => [s.name, s.fallback]),
  );
  const { runEnv: _one, ...explicit } = loadConfig({ ...sources, env: { DAEMON_TOKEN: "t", ...env } });
  const { runEnv: _other, ...implicit } = loadConfig({ ...sources, env: { DAEMON_TOKEN: "t" } });
  expect(JSON.stringify(explicit)).toBe(JSON.stringify(implicit));
});

test("a setting that the program reads is in the list", async () => {
  const text = await read("src/config.ts");
  const body = text.slice(text.indexOf("export function loadConfig"));
  const names = [...body.matchAll(/"([A-Z][A-Z_]+)"/g)].map((match) => match[1] ?? "");
  const listed = SETTINGS.flatMap(({ name, about }) => [name, ...(about.match(/[A-Z][A-Z_]{2,}/g) ?? [])]);
  expect(names.filter((name) => !listed.some((known) => known === name))).toEqual([]);
});
