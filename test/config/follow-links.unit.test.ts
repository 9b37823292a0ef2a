/** Links to a folder are followed once, and not those that the agent can have made. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { chmodSync, chownSync, lchownSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { followLinks } from "../../src/follow-links.ts";
import { needsRoot } from "../support/needs-root.ts";

const AGENT = { uid: 12345, gid: 12346 };
let folder: string;

beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "dispatchd-links-")));
  chmodSync(folder, 0o755);
  for (const name of ["app/org/home", "data/real", "home"]) mkdirSync(join(folder, name), { recursive: true });
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const at = (path: string): string => join(folder, path);
const follow = (path: string, agent: typeof AGENT | null = null) =>
  followLinks(at(path), { agent, closed: at("app/org") });

test("the folder, as far as there is one, with every link on the way resolved", async () => {
  symlinkSync(at("data/real"), at("home/absolute"));
  symlinkSync("../data", at("home/above"));
  symlinkSync("absolute", at("home/twice"));
  symlinkSync("../data/not/yet", at("home/dangling"));
  symlinkSync("round", at("home/round"));
  for (const [path, leads] of [
    ["data/real", "data/real"],
    ["home/absolute", "data/real"],
    ["home/above/real", "data/real"],
    ["home/twice", "data/real"],
    ["home/absolute/new/one", "data/real/new/one"],
    ["home/dangling", "data/not/yet"],
    ["nothing/here", "nothing/here"],
    ["home/round", "home/round"],
  ] as const) {
    expect([path, await follow(path)]).toEqual([path, { type: "path", path: at(leads) }]);
  }
});

test("where the volumes are no look is taken, by whatever way it comes there", async () => {
  // A look at what is in there would find that it is a link, and lead out again.
  symlinkSync(at("data/real"), at("app/org/home/out"));
  symlinkSync(at("app/org/home/out"), at("home/straight"));
  symlinkSync("../home/../app/org/home/out", at("home/around"));
  symlinkSync(at("app"), at("other-app"));
  symlinkSync(at("other-app/org/not-there"), at("home/by-another-name"));
  for (const path of ["home/straight", "home/around", "home/by-another-name"]) {
    expect([path, (await follow(path)).type]).toEqual([path, "closed"]);
  }
  expect(await followLinks(at("home/straight"), { agent: null, closed: at("other-app/org") })).toMatchObject({
    type: "closed",
  });
  rmSync(at("app/org"), { recursive: true });
  symlinkSync("../data", at("app/org"));
  symlinkSync(at("data/real"), at("home/into-volumes"));
  expect((await follow("home/into-volumes")).type).toBe("closed");
});

// Ownership can be given by root alone; CI is root.
needsRoot("of links that the agent can have made, or put there, none is followed", async () => {
  for (const link of ["home/ours", "home/agents", "ours"]) symlinkSync(at("data/real"), at(link));
  symlinkSync(at("home"), at("to-home"));
  chownSync(at("home"), AGENT.uid, AGENT.gid);
  lchownSync(at("home/agents"), AGENT.uid, AGENT.gid);
  expect(await follow("ours/below", AGENT)).toEqual({ type: "path", path: at("data/real/below") });
  expect(await follow("home/agents/below", AGENT)).toEqual({ type: "agents-link", path: at("home/agents/below") });
  // Whoever can write the folder can have brought it there, whosever it is.
  expect(await follow("home/ours", AGENT)).toEqual({ type: "agents-link", path: at("home/ours") });
  expect(await follow("to-home/ours", AGENT)).toEqual({ type: "agents-link", path: at("home/ours") });
  // As in /tmp: there all may write, and nobody takes away what is another's.
  mkdirSync(at("shared"));
  chmodSync(at("shared"), 0o1777);
  symlinkSync(at("data/real"), at("shared/ours"));
  expect(await follow("shared/ours", AGENT)).toEqual({ type: "path", path: at("data/real") });
});
