/** What the documents say there is, there is; and what there is, they say. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import { HTTP_STATUS, RUN_ERROR_CODES } from "../../src/errors.ts";
import { openApi } from "../../src/http/openapi.ts";

const ROOT = join(import.meta.dir, "../..");
const read = (name: string): Promise<string> => Bun.file(join(ROOT, name)).text();

async function textOfSrc(): Promise<string> {
  const texts: string[] = [];
  for await (const path of new Glob("**/*.ts").scan(join(ROOT, "src"))) texts.push(await read(join("src", path)));
  return texts.join("\n");
}

/** What is committed, or would be. */
function filesOfRepository(): string[] {
  const listed = Bun.spawnSync(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], { cwd: ROOT });
  return listed.stdout
    .toString()
    .split("\0")
    .filter((path) => path !== "" && existsSync(join(ROOT, path)));
}

/** Names in backticks that stand first in a row of a table below the heading. */
function firstColumn(text: string, heading: string): string[] {
  const section = text.split(`## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  return [...section.matchAll(/^\| `([^`]+)`/gm)].map((match) => match[1] ?? "");
}

test("docs/http.md has every code of a refusal and of a run", async () => {
  const text = await read("docs/http.md");
  expect(firstColumn(text, "Refusals").sort()).toEqual(Object.keys(HTTP_STATUS).sort());
  expect(firstColumn(text, "Codes of a run").sort()).toEqual([...RUN_ERROR_CODES].sort());
  const section = text.split("## Refusals\n")[1]?.split("\n## ")[0] ?? "";
  const told = [...section.matchAll(/^\| `([a-z_]+)` \| (\d+) \|/gm)].map(([, code, status]) => [code, Number(status)]);
  expect(Object.fromEntries(told)).toEqual({ ...HTTP_STATUS });
});

test("docs/http.md and the OpenAPI document have every route", async () => {
  const text = await read("docs/http.md");
  const told = [...text.matchAll(/^\| `([A-Z]+) (\/[^`?]*)` \|/gm)].map((match) => `${match[1]} ${match[2]}`);
  const source = await read("src/http/routes.ts");
  const paths = [...source.matchAll(/^ {6}"([^"]*)": \{ (.*) \},$/gm)].flatMap(([, path = "", methods = ""]) => {
    const full = ["", "/frames", "/answers"].includes(path) ? `/runs/:id${path}` : path;
    return [...methods.matchAll(/\b(GET|POST|DELETE|PUT):/g)].map((match) => `${match[1]} ${full}`);
  });
  const served = [...paths, "GET /health"].sort();
  expect(served.length).toBeGreaterThan(8);
  expect(told.sort()).toEqual(served);
  const described = Object.entries(openApi("0").paths as Record<string, object>).flatMap(([path, methods]) =>
    Object.keys(methods)
      .filter((key) => key !== "parameters")
      .map((method) => `${method.toUpperCase()} ${path.replace(/\{\w+\}/, ":id")}`),
  );
  expect(described.sort()).toEqual(served);
});

test("docs/operating.md has every event of the log and every metric", async () => {
  const [source, text] = await Promise.all([textOfSrc(), read("docs/operating.md")]);
  const events = [...source.matchAll(/\b(?:log|quota|sink)\)?\.(?:debug|info|warn|error|log)\(\s*"([a-z][^"]+)"/g)];
  const dropped = [...source.matchAll(/\}\)\.warn\("([^"]+)"/g)];
  const names = new Set([...events, ...dropped].map((match) => match[1] ?? ""));
  expect(names.size).toBeGreaterThan(30);
  expect(firstColumn(text, "Events").sort()).toEqual([...names].sort());
  const metrics = [
    ...(await read("src/metrics/prometheus.ts")).matchAll(/\b(?:counter|histogram|gauge)\("([a-z_]+)"/g),
  ];
  const expected = ["dispatchd_info", ...metrics.map((match) => `dispatchd_${match[1]}`)];
  expect(firstColumn(text, "Metrics").sort()).toEqual(expected.sort());
});

test("links and paths in the documents lead somewhere", async () => {
  const broken: string[] = [];
  for (const path of filesOfRepository().filter((name) => name.endsWith(".md"))) {
    const text = await read(path);
    const links = [...text.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map((match) => join(dirname(path), match[1] ?? ""));
    const paths = [...text.matchAll(/`((?:src|test|docs|scripts|deploy|bench)\/[\w./-]+)`/g)].map(
      (match) => match[1] ?? "",
    );
    for (const target of [...links, ...paths]) if (!existsSync(join(ROOT, target))) broken.push(`${path}: ${target}`);
  }
  expect(broken).toEqual([]);
});

test("nothing in the repository names the machine that it was written on", async () => {
  const listed = filesOfRepository();
  expect(listed.length).toBeGreaterThan(50);
  const places = [ROOT, process.env.HOME].filter((place) => place !== undefined && place.split("/").length > 2);
  const hosts = /registry=|"resolved":|https?:\/\/[^\s"')]*(npmjs|verdaccio|artifactory|nexus|jfrog)/;
  const found: string[] = [];
  for (const path of listed) {
    const file = Bun.file(join(ROOT, path));
    if (!(await file.exists())) continue;
    const text = await file.text();
    for (const place of places) if (place && text.includes(`${place}/`)) found.push(`${path}: ${place}`);
    const host = hosts.exec(text)?.[0];
    if (host && path !== "test/style/documented.unit.test.ts") found.push(`${path}: ${host}`);
  }
  expect(found).toEqual([]);
});
