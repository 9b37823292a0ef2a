/** A real turn of Claude Code as another user than the daemon's. */
import { expect } from "bun:test";
import { execFileSync } from "node:child_process";
import { chmod, chown, copyFile, lstat, mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findClaudeCode } from "../../src/harness/claude-code/find-claude-code.ts";
import { BINARY, TestDaemon } from "../support/daemon.ts";
import { needsRoot } from "../support/needs-root.ts";
import { calls, says, startScriptedModel } from "../support/scripted-model/index.ts";

const AGENT = { uid: 34567, gid: 34568 };

/** A pod's folders: the home and the checkout are the agent's, all else is root's. */
class Pod implements AsyncDisposable {
  private constructor(readonly folder: string) {}
  static async open(): Promise<Pod> {
    const pod = new Pod(await mkdtemp(join(tmpdir(), "dispatchd-pod-")));
    await chmod(pod.folder, 0o711);
    for (const path of [pod.home, pod.repo]) {
      await mkdir(path, { mode: 0o700 });
      await chown(path, AGENT.uid, AGENT.gid);
    }
    return pod;
  }
  get home(): string {
    return join(this.folder, "home");
  }
  get repo(): string {
    return join(this.folder, "repo");
  }
  get env(): Record<string, string | undefined> {
    return {
      AGENT_USER: `${AGENT.uid}:${AGENT.gid}`,
      APP_ROOT: this.folder,
      STATE_DIR: join(this.folder, "state"),
      HOME: this.home,
      EXIT_GRACE_MS: "2000",
      KILL_GRACE_MS: "500",
    };
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }
}

needsRoot(
  "two turns of one conversation, as the agent's user, in its home and its checkout",
  async () => {
    await using pod = await Pod.open();
    const model = await startScriptedModel();
    try {
      await using daemon = await TestDaemon.start({ harness: null, env: pod.env });
      const env = { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "no-credential" };
      model.push(
        calls(["Bash", { command: "id -u; id -g; id -G; pwd; echo made > made-by-the-agent" }]),
        says("First."),
      );
      const first = await daemon.run({ runId: "r1", threadId: "t", input: { userMessage: "Who are you?", env } });
      const output = first.flatMap(({ chunks }) => chunks).find(({ type }) => type === "tool-output-available")?.output;
      expect(output).toBe([AGENT.uid, AGENT.gid, AGENT.gid, pod.repo].join("\n"));
      expect(first.find(({ outcome }) => outcome)?.outcome?.type).toBe("finished");
      expect((await stat(join(pod.repo, "made-by-the-agent"))).uid).toBe(AGENT.uid);
      expect((await stat(join(pod.home, ".claude"))).uid).toBe(AGENT.uid);

      model.push(says("Second."));
      const second = await daemon.run({ runId: "r2", threadId: "t", input: { userMessage: "And now?", env } });
      expect(second[0]?.preparation?.session).toBe("local");
      expect(second.find(({ outcome }) => outcome)?.outcome?.type).toBe("finished");
      expect(JSON.stringify(model.requests.at(-1)?.body)).toContain("Who are you?");
    } finally {
      await model.stop();
    }
  },
  20_000,
);

needsRoot("its calls reach the callback and the person through a directory of its own", async () => {
  await using pod = await Pod.open();
  // The binary lies where that user cannot reach it.
  const closed = join(pod.folder, "closed");
  await mkdir(closed, { mode: 0o700 });
  const binary = join(closed, "dispatchd");
  await copyFile(BINARY, binary);
  const model = await startScriptedModel();
  const callback = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => Response.json({ text: "looked up" }) });
  try {
    const CLAUDE_CODE_PATH = findClaudeCode({
      configured: process.env.CLAUDE_CODE_PATH ?? null,
      execPath: BINARY,
      moduleDir: import.meta.dir,
      path: process.env.PATH,
      home: process.env.HOME,
    });
    await using daemon = await TestDaemon.start({ harness: null, env: { ...pod.env, CLAUDE_CODE_PATH }, binary });
    const input = {
      env: { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "no-credential" },
      tools: [
        { name: "look_up", description: "Looks up.", inputSchema: { type: "object" }, kind: "callback" },
        { name: "connect", description: "Connects.", inputSchema: { type: "object" }, kind: "client" },
      ],
      callback: { url: `http://127.0.0.1:${callback.port}/`, headers: { "X-Secret": "callback-secret-2" } },
    };
    model.push(calls(["mcp__tools__look_up", {}, "toolu_look"]));
    model.push(calls(["mcp__tools__connect", { to: "mail" }, "toolu_connect"]));
    const first = await daemon.run({ runId: "r1", threadId: "t", input: { ...input, userMessage: "Go." } });
    const chunks = first.flatMap(({ chunks }) => chunks);
    expect(chunks.find(({ toolCallId, type }) => toolCallId === "toolu_look" && /output/.test(type))).toMatchObject({
      type: "tool-output-available",
      output: "looked up",
    });
    const outcome = first.find(({ outcome }) => outcome)?.outcome;
    if (outcome?.type !== "interrupt") throw new Error(JSON.stringify(outcome));
    model.push(says("Connected."));
    const answers = [{ interruptId: outcome.interrupts[0]?.id, status: "resolved", payload: "yes" }];
    const second = await daemon.run({
      runId: "r2",
      threadId: "t",
      input: { ...input, userMessage: undefined, answers, suspension: outcome.suspension },
    });
    expect(second.find(({ outcome }) => outcome)?.outcome?.type).toBe("finished");
    expect(JSON.stringify(model.requests.at(-1)?.body)).toContain('\\"yes\\"');
    const text = (await readdir(pod.folder, { recursive: true })).join("\n");
    expect(text).not.toContain(".res.json");
  } finally {
    await callback.stop(true);
    await model.stop();
  }
});

needsRoot("the daemon ends processes of the agent's user, those too that left its group", async () => {
  await using pod = await Pod.open();
  const pidFile = join(pod.repo, "pid");
  const script = `setsid sh -c 'trap "" TERM; echo $$ > ${pidFile}; while :; do sleep 60; done' & sleep 60`;
  await using daemon = await TestDaemon.start({
    harness: ["/bin/sh", "-c", script],
    env: { ...pod.env, RUN_ENV_ALLOW: "PATH" },
  });
  const response = await daemon.dispatch({ runId: "r" });
  while (!(await Bun.file(pidFile).exists()) || (await Bun.file(pidFile).text()) === "") await Bun.sleep(10);
  const pid = Number(await Bun.file(pidFile).text());
  expect((await stat(`/proc/${pid}`)).uid).toBe(AGENT.uid);
  await daemon.cancel("r", "?wait=1");
  await response.text();
  expect(await Bun.file(`/proc/${pid}/status`).exists()).toBe(false);
});

needsRoot("what the agent puts in the way of a folder is not given to it", async () => {
  await using pod = await Pod.open();
  const mine = join(pod.folder, "of-root");
  await mkdir(mine, { mode: 0o700 });
  await writeFile(join(mine, "file"), "");
  await using daemon = await TestDaemon.start({
    harness: ["/bin/sh", "-c", `rm -rf "$HOME/.claude"; ln -s "${mine}" "$HOME/.claude"; cat >/dev/null`],
    env: { ...pod.env, HARNESS_CAPABILITIES: '{"resume":true,"sessionFiles":{"main":"s/<id>","side":"d/<id>"}}' },
  });
  await daemon.run({ runId: "r1" });
  expect((await lstat(join(pod.home, ".claude"))).isSymbolicLink()).toBe(true);
  await daemon.run({ runId: "r2" });
  expect((await stat(mine)).uid).toBe(0);
  await daemon.stop();
  await daemon.launch();
  await daemon.run({ runId: "r3" });
  expect([(await stat(mine)).uid, (await stat(join(mine, "file"))).uid]).toEqual([0, 0]);
});

needsRoot(
  "a link of the agent's above its configuration folder leads to nothing that is made, or given to it",
  async () => {
    await using pod = await Pod.open();
    const mountPath = join(pod.folder, "org/home");
    const statusPath = join(pod.folder, "status.json");
    await mkdir(join(mountPath, "skills"), { recursive: true });
    await writeFile(statusPath, JSON.stringify({ mounts: [{ volume: "home", mountPath }] }));
    const mine = join(pod.folder, "of-root");
    await mkdir(join(mine, "there"), { recursive: true, mode: 0o755 });
    const config = join(pod.home, ".config");
    for (const below of ["tool", "there", "deep/er/tool"]) {
      await using daemon = await TestDaemon.start({
        harness: ["/bin/sh", "-c", `rm -rf "${config}"; ln -s "${mine}" "${config}"; cat >/dev/null`],
        env: {
          ...pod.env,
          ORGFS_SIDECAR_STATUS_PATH: statusPath,
          ORG_WRITE_BACK_MS: "0",
          CLAUDE_CONFIG_DIR: join(config, below),
          HARNESS_CAPABILITIES: '{"resume":true,"sessionFiles":{"main":"s/<id>","side":"d/<id>"}}',
        },
      });
      await daemon.run({ runId: `r1 ${below}` });
      const frames = await daemon.run({ runId: `r2 ${below}` });
      expect(frames.find(({ outcome }) => outcome)?.outcome).toEqual({ type: "finished" });
      expect((await lstat(config)).isSymbolicLink()).toBe(true);
      // At the start, when the folder would be taken over, it is there already.
      await daemon.stop();
      await daemon.launch();
      await daemon.run({ runId: `r3 ${below}` });
      expect(await readdir(mine, { recursive: true })).toEqual(["there"]);
      expect((await stat(join(mine, "there"))).uid).toBe(0);
      await rm(config);
    }
  },
  20_000,
);

needsRoot("what a run's folder links to outlives the run", async () => {
  await using pod = await Pod.open();
  const mine = join(pod.folder, "of-root");
  await mkdir(mine);
  await writeFile(join(mine, "file"), "");
  const script = `dir=$(cat | sed 's/.*"runDir":"\\([^"]*\\)".*/\\1/'); ln -s "${mine}" "$dir/link"; ln -s "${mine}/file" "$dir/to-file"; ls "$dir" > "$HOME/listed"`;
  await using daemon = await TestDaemon.start({ harness: ["/bin/sh", "-c", script], env: pod.env });
  await daemon.run({ runId: "r" });
  expect(await Bun.file(join(pod.home, "listed")).text()).toBe("link\nto-file\n");
  expect(await Bun.file(join(mine, "file")).exists()).toBe(true);
  const left = execFileSync("ls", [join(pod.folder, "state", "agent", "runs")], { encoding: "utf8" });
  expect(left).toBe("");
});

needsRoot("a state folder that the agent could replace by another one is refused", async () => {
  await using pod = await Pod.open();
  const start = async (stateDir: string): Promise<string> => {
    try {
      await using daemon = await TestDaemon.start({ env: { ...pod.env, STATE_DIR: stateDir } });
      return `listens on ${daemon.port}`;
    } catch (error) {
      return (error as Error).message;
    }
  };
  const refused = (folder: string) => `AGENT_USER can write ${folder} and so replace the state folder`;
  // Its own checkout; a folder that all may write; one that its group may; a link in one of these.
  expect(await start(join(pod.repo, "state"))).toContain(refused(pod.repo));
  const open = join(pod.folder, "open");
  await mkdir(open);
  await chmod(open, 0o777);
  expect(await start(join(open, "deep", "state"))).toContain(refused(open));
  await chmod(open, 0o775);
  await chown(open, 0, AGENT.gid);
  expect(await start(join(open, "state"))).toContain(refused(open));
  await mkdir(join(pod.folder, "of-root"));
  await symlink(join(pod.folder, "of-root"), join(pod.repo, "link"));
  expect(await start(join(pod.repo, "link", "state"))).toContain(refused(pod.repo));
  await mkdir(join(pod.folder, "of-agent"), { mode: 0o700 });
  await chown(join(pod.folder, "of-agent"), AGENT.uid, AGENT.gid);
  expect(await start(join(pod.folder, "of-agent"))).toContain(refused(join(pod.folder, "of-agent")));
  // A folder like the temporary one is none: there nobody takes away what is another's.
  await chown(open, 0, 0);
  await chmod(open, 0o1777);
  expect(await start(join(open, "fine"))).toContain("listens on");
});

needsRoot("a home that is not there yet is made, and is the agent's", async () => {
  await using pod = await Pod.open();
  const home = join(pod.folder, "not", "there");
  await using daemon = await TestDaemon.start({
    harness: ["/bin/sh", "-c", `touch "$HOME/.claude/mine" && cat >/dev/null`],
    env: {
      ...pod.env,
      HOME: home,
      HARNESS_CAPABILITIES: '{"resume":true,"sessionFiles":{"main":"s/<id>","side":"d/<id>"}}',
    },
  });
  const frames = await daemon.run({ runId: "r" });
  expect(frames.at(-2)?.outcome).toEqual({ type: "finished" });
});

needsRoot("a daemon that is not root cannot promise another user, and refuses to start", async () => {
  const start = TestDaemon.start({ user: AGENT, env: { AGENT_USER: "45678:45678" } });
  const message = await start.then(
    () => "started",
    (error: Error) => error.message,
  );
  expect(message).toContain("AGENT_USER needs a daemon that is root");
});
