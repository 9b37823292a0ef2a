/** A turn that waits for a person: answered, at the very moment of its limit, by another reader, cancelled. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { pauseText } from "../../src/pause-text.ts";
import { AskingPod, calling, chunksIn, resultOf, typesOf, waitingOf } from "../support/asking-pod.ts";
import { eventually, type LogLine } from "../support/daemon.ts";
import { Follower } from "../support/follow.ts";
import { readMessage } from "../support/read-message.ts";
import type { Step } from "../support/scripted-harness.ts";
import { outcomeOf, resolved } from "../support/tools-pod.ts";

let pod: AskingPod;
beforeAll(async () => {
  pod = await AskingPod.start();
});
afterAll(async () => {
  await pod[Symbol.asyncDispose]();
});

const pick = (id: string) => ({ id, name: "pick", input: { from: ["a", "b"] } });

test.concurrent("the turn goes on with the answer that comes a second later, and its reader is kept alive", async () => {
  const body = await pod.holds({ runId: "later", threadId: "later", steps: calling(pick("p")) });
  const waiting = waitingOf(body.frames);
  expect(waiting).toMatchObject({
    interrupts: [{ toolCallId: "p", reason: "dispatchd:client_tool", metadata: { toolName: "pick" } }],
    suspension: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/),
  });
  expect(Date.parse(waiting?.until ?? "") - Date.now()).toBeGreaterThan(500_000);
  const asked = body.lines.length;
  await body.until(({ lines }) => lines.slice(asked).filter((line) => line === "").length >= 3);
  const answer = resolved(waiting?.interrupts[0], { picked: "/clear <b>" });
  // As existing control planes call it.
  const answers = JSON.stringify({ answers: [answer] });
  const reply = await pod.daemon.fetch("/_sandbox/runs/later/answers", { method: "POST", body: answers });
  expect([reply.status, await reply.json()]).toEqual([200, { accepted: 1 }]);
  await body.ended;
  expect(outcomeOf(body.frames)?.type).toBe("finished");
  expect(resultOf(body.frames, "p")).toEqual({ text: '{"picked":"/clear \\u003cb>"}', isError: false });
  expect(typesOf(body.frames, "p")).toEqual(["tool-input-available", "tool-output-available"]);
  const { message, errors } = await readMessage(chunksIn(body.frames));
  expect(errors).toEqual([]);
  expect(message?.parts).toContainEqual(
    expect.objectContaining({ toolCallId: "p", state: "output-available", output: { picked: "/clear <b>" } }),
  );
  // Once more, after the end: there is nobody to be told.
  expect(await pod.answer("later", [answer])).toMatchObject({ status: 410, body: { error: "ended" } });
});

test.concurrent("what was answered while the run waited is answered by no dispatch, then or later", async () => {
  const calls = [
    { id: "e", name: "erase", input: { what: "it" } },
    { id: "p", name: "pick" },
  ];
  const body = await pod.holds({ runId: "answered", threadId: "answered", steps: calling(...calls) }, 2);
  const { interrupts = [], suspension } = waitingOf(body.frames) ?? {};
  const about = (id: string) => interrupts.find(({ toolCallId }) => toolCallId === id);
  const [approval, picked] = [resolved(about("e"), { approved: true }), resolved(about("p"), { picked: "a" })];
  const resume = async (runId: string) => {
    const input = { answers: [approval, picked], suspension };
    const response = await pod.dispatch({ runId, threadId: "answered", input });
    return { status: response.status, body: await response.json() };
  };
  const refusal = (id = "none") => ({ status: 409, body: { error: "stale", interruptId: id, dead: true } });
  await pod.answer("answered", [approval]);
  expect(await resume("meanwhile")).toMatchObject(refusal(approval.interruptId));
  await pod.answer("answered", [picked]);
  await body.ended;
  expect(outcomeOf(body.frames)?.type).toBe("finished");
  // The first of them: both were asked at once.
  expect(await resume("afterwards")).toMatchObject(refusal(interrupts[0]?.id));
  expect(pod.callbacks.filter(({ body: { runId } }) => runId === "answered")).toHaveLength(1);
});

test.concurrent("an approved call is carried out exactly once, under the key of the call; a denied one is not", async () => {
  const calls = ["yes", "no"].map((id) => ({ id, name: "erase", input: { what: id } }));
  const body = await pod.holds({ runId: "approvals", threadId: "approvals", steps: calling(...calls) }, 2);
  const interrupts = waitingOf(body.frames)?.interrupts ?? [];
  const about = (id: string) => interrupts.find(({ toolCallId }) => toolCallId === id);
  expect(pod.callbacks.filter(({ body: { runId } }) => runId === "approvals")).toEqual([]);
  const answers = [
    resolved(about("yes"), { approved: true }),
    resolved(about("no"), { approved: false, reason: "not now" }),
  ];
  expect(await pod.answer("approvals", answers)).toEqual({ status: 200, body: { accepted: 2 } });
  // Sent twice, as by a client that lost the reply: taken, or too late, and nothing happens again.
  await pod.answer("approvals", answers);
  await body.ended;
  const carried = pod.callbacks.filter(({ body: { runId } }) => runId === "approvals");
  expect(carried.map(({ body: order }) => order.arguments)).toEqual([{ what: "yes" }]);
  expect(carried[0]?.headers["idempotency-key"]).toBe("approvals:yes");
  expect(resultOf(body.frames, "yes")).toEqual({ text: "done", isError: false });
  expect(resultOf(body.frames, "no")).toEqual({ text: '{"denied":true,"reason":"not now"}', isError: true });
  expect(typesOf(body.frames, "no").at(-1)).toBe("tool-output-denied");
  const { message, errors } = await readMessage(chunksIn(body.frames));
  expect(errors).toEqual([]);
  const states = message?.parts.flatMap((part) => ("state" in part && "toolCallId" in part ? [part.state] : []));
  expect(states).toEqual(["output-available", "output-denied"]);
});

test.concurrent("what no run asks, or asks no more, is refused, and so is what does not fit", async () => {
  const unknown = { interruptId: "i", status: "cancelled" } as const;
  expect(await pod.answer("never", [unknown])).toMatchObject({ status: 404, body: { error: "unknown_run" } });
  const body = await pod.holds({ runId: "refusals", threadId: "refusals", steps: calling(pick("p"), pick("q")) }, 2);
  const interrupts = waitingOf(body.frames)?.interrupts ?? [];
  // Asked in the order in which they came.
  const [p, q] = ["p", "q"].map((id) => interrupts.find(({ toolCallId }) => toolCallId === id));
  expect(await pod.answer("refusals", [resolved(p, { picked: "a" }), unknown])).toMatchObject({
    status: 409,
    body: { error: "stale", interruptId: "i", reason: "the run asks no such question", dead: true },
  });
  expect(await pod.answer("refusals", [resolved(p, { picked: "a" }), resolved(q, { picked: 1 })])).toMatchObject({
    ...{ status: 400, body: { error: "bad_input", detail: expect.stringContaining("answers.1.payload") } },
  });
  expect(await pod.answer("refusals", [])).toMatchObject({ status: 400 });
  expect(await pod.answer("refusals", [resolved(p, { picked: "a" })])).toMatchObject({ status: 200 });
  await body.until(({ frames }) => waitingOf(frames)?.interrupts.length === 1);
  expect(waitingOf(body.frames)?.interrupts.map(({ id }) => id)).toEqual([q?.id ?? ""]);
  expect(await pod.answer("refusals", [resolved(p, { picked: "b" })])).toMatchObject({
    ...{ status: 409, body: { interruptId: p?.id, reason: "it was answered otherwise", dead: true } },
  });
  expect(await pod.answer("refusals", [resolved(p, { picked: "a" })])).toMatchObject({ status: 200 });
  expect(await pod.answer("refusals", [{ ...resolved(q, undefined), status: "cancelled" }])).toMatchObject({
    status: 200,
  });
  await body.ended;
  expect(resultOf(body.frames, "q")).toEqual({ text: '{"cancelled":true}', isError: false });
});

test.concurrent("a reader that comes back finds the question, and whoever has it can answer", async () => {
  const lost = new AbortController();
  const turn = { runId: "again", threadId: "again", steps: calling(pick("p")) };
  const first = await pod.holds({ ...turn, signal: lost.signal });
  lost.abort();
  await first.ended;
  await eventually(async () => (await pod.daemon.show("again")).readers === 0);
  const body = new Follower(await pod.daemon.fetch("/runs/again/frames"));
  await body.until(({ frames }) => waitingOf(frames) !== undefined);
  expect(waitingOf(body.frames)).toEqual(waitingOf(first.frames));
  expect(await pod.answer("again", [resolved(waitingOf(body.frames)?.interrupts[0], { picked: "a" })])).toMatchObject({
    status: 200,
  });
  await body.ended;
  expect(resultOf(body.frames, "p").text).toBe('{"picked":"a"}');
});

test.concurrent("after a cancel there is nobody to answer, and nothing is left of the question", async () => {
  const body = await pod.holds({ runId: "cancelled", threadId: "cancelled", steps: calling(pick("p")) });
  await pod.daemon.cancel("cancelled", "?wait=1");
  await body.ended;
  const answer = resolved(waitingOf(body.frames)?.interrupts[0], { picked: "a" });
  expect(await pod.answer("cancelled", [answer])).toMatchObject({
    ...{ status: 410, body: { error: "ended", outcome: { error: { code: "cancelled" } } } },
  });
  expect(typesOf(body.frames, "p")).toEqual(["tool-input-available", "tool-output-error"]);
  expect((await readMessage(chunksIn(body.frames))).errors).toEqual([]);
});

test.concurrent("an answer at the very moment of the limit is taken or too late, for reader, model and sender alike", async () => {
  const ids = Array.from({ length: 16 }, (_, n) => `p${n}`);
  await Promise.all(
    [1.2, 1.5, 1.8].map(async (holdSeconds) => {
      const runId = `limit of ${holdSeconds} s`;
      const input = { clientTools: { holdSeconds } };
      const body = await pod.holds({ runId, threadId: runId, steps: calling(...ids.map(pick)), input }, ids.length);
      const { interrupts = [], until = "" } = waitingOf(body.frames) ?? {};
      const took = await Promise.all(
        interrupts.map(async (interrupt, n) => {
          // From 40 ms before the limit to 20 ms after it: a request takes some of them.
          await Bun.sleep(Date.parse(until) - Date.now() - 40 + 4 * n);
          const { status } = await pod.answer(runId, [resolved(interrupt, { picked: interrupt.toolCallId })]);
          return { id: interrupt.toolCallId, status };
        }),
      );
      await body.ended;
      const { frames } = body;
      const outcome = outcomeOf(frames);
      const parked = outcome?.type === "interrupt" ? outcome.interrupts.map(({ toolCallId }) => toolCallId) : [];
      for (const { id, status } of took) {
        expect([200, 409]).toContain(status);
        const isAnswered = status === 200;
        expect([id, parked.includes(id)]).toEqual([id, !isAnswered]);
        expect(resultOf(frames, id).text).toBe(isAnswered ? `{"picked":"${id}"}` : pauseText("pick"));
        expect(typesOf(frames, id)).toEqual(["tool-input-available", ...(isAnswered ? ["tool-output-available"] : [])]);
      }
      const { message, errors } = await readMessage(chunksIn(frames));
      expect(errors).toEqual([]);
      const open = message?.parts.filter((part) => "state" in part && part.state === "input-available");
      expect(open).toHaveLength(parked.length);
      expect(chunksIn(frames, "finish")).toHaveLength(1);
    }),
  );
});

test.concurrent("a process of the agent that answers its own question and changes its file brings nothing about", async () => {
  const asked = pod.daemon.path("asked");
  const sh = `
    cd "$RELAY"
    while [ ! -e '${asked}' ]; do sleep 0.02; done
    name=$(basename "$(ls *.req.json)" .req.json)
    sed -i 's/"one"/"all"/' "$name.req.json"
    printf '{"ok":true,"text":"approved","signature":"%s"}' "$(printf 'A%.0s' $(seq 86))" > .a.tmp
    mv .a.tmp "$name.res.json"
  `;
  const [start, ...rest] = calling({ id: "e", name: "erase", input: { what: "one" } });
  if (!start) throw new Error("no steps");
  const body = await pod.holds({ runId: "forger", threadId: "forger", steps: [start, { sh }, ...rest] });
  await writeFile(asked, "");
  await pod.daemon.event("harness stderr", 0, ({ line }) => String(line).includes("without a valid signature"));
  const [interrupt] = waitingOf(body.frames)?.interrupts ?? [];
  expect(interrupt?.metadata.input).toEqual({ what: "one" });
  expect(pod.callbacks.filter(({ body: { runId } }) => runId === "forger")).toEqual([]);
  expect(await pod.answer("forger", [resolved(interrupt, { approved: true })])).toMatchObject({ status: 200 });
  await body.ended;
  const carried = pod.callbacks.filter(({ body: { runId } }) => runId === "forger");
  expect(carried.map(({ body: order }) => order.arguments)).toEqual([{ what: "one" }]);
  expect(resultOf(body.frames, "e")).toEqual({ text: "done", isError: false });
});

test.concurrent("calls that a process of the agent makes and no reader sees are carried out for nobody", async () => {
  const request = (toolCallId: string, toolName: string, what: string) =>
    `{"toolName":"${toolName}","toolCallId":"${toolCallId}","args":{"what":"${what}","key":"${what}"},"pid":%s}`;
  const forged = [
    request("ghost", "look_up", "all"),
    request("", "look_up", "all"),
    request("a", "look_up", "all"),
    request("e", "look_up", "one"),
    request("e", "erase", "all"),
  ];
  const publish = forged.map((text, n) => {
    const name = `${n}`.repeat(32);
    return `printf '${text}' $$ > .${n}.tmp; mv .${n}.tmp ${name}.req.json`;
  });
  const sh = `cd "$RELAY"; ${publish.join("; ")}; exec sleep 60`;
  const [start, ...rest] = calling({ id: "e", name: "erase", input: { what: "one" } });
  if (!start) throw new Error("no steps");
  // Made through the shim itself, as whoever can start one may: it is the announcement that counts.
  const unseen = { id: "unseen", name: "look_up", input: { key: "all" }, announced: null };
  const calls = [{ id: "a", name: "look_up", input: { key: "a" } }, unseen];
  const steps: Step[] = [start, { sh }, { calls }, ...rest];
  const body = await pod.holds({ runId: "ghosts", threadId: "ghosts", steps });
  const isGhost = ({ event, run }: LogLine): boolean => event === "tool request not believed" && run === "ghosts";
  await eventually(() => pod.daemon.log.filter(isGhost).length === forged.length + 1);
  await pod.answer("ghosts", [resolved(waitingOf(body.frames)?.interrupts[0], { approved: false })]);
  await body.ended;
  const carried = pod.callbacks.filter(({ body: { runId } }) => runId === "ghosts");
  expect(carried.map(({ body: order }) => order.arguments)).toEqual([{ key: "a" }]);
  expect(resultOf(body.frames, "unseen")).toMatchObject({ isError: true });
  expect(new Set(chunksIn(body.frames).flatMap(({ toolCallId }) => toolCallId ?? []))).toEqual(new Set(["a", "e"]));
  const metrics = await (await pod.daemon.fetch("/metrics")).text();
  expect(metrics).toMatch(/dispatchd_tool_calls_total\{result="made_up"\} [1-9]/);
});

test.concurrent("a question whose shim dies is withdrawn, and its harness says what became of the call", async () => {
  const asked = pod.daemon.path("asked of a shim that dies");
  const sh = `while [ ! -e '${asked}' ]; do sleep 0.02; done; kill -9 $(sed 's/.*"pid":\\([0-9]*\\).*/\\1/' "$RELAY"/*.req.json)`;
  const [start, ...rest] = calling(pick("p"));
  if (!start) throw new Error("no steps");
  const body = await pod.holds({ runId: "lost", threadId: "lost", steps: [start, { sh }, ...rest] });
  const [interrupt] = waitingOf(body.frames)?.interrupts ?? [];
  await writeFile(asked, "");
  await body.until(({ frames }) => waitingOf(frames)?.interrupts.length === 0);
  expect(waitingOf(body.frames)).not.toHaveProperty("suspension");
  expect(await pod.answer("lost", [resolved(interrupt, { picked: "a" })])).not.toMatchObject({ status: 200 });
  await body.ended;
  expect(outcomeOf(body.frames)?.type).toBe("finished");
  expect(typesOf(body.frames, "p")).toEqual(["tool-input-available", "tool-output-error"]);
  expect((await readMessage(chunksIn(body.frames))).errors).toEqual([]);
});

test.concurrent("large arguments reach a callback and are shown to no person; a large answer reaches the model whole", async () => {
  const large = "x".repeat(400 << 10);
  const calls = [
    { id: "a", name: "look_up", input: { key: large } },
    { id: "e", name: "erase", input: { what: large } },
    { id: "p", name: "pick", input: {} },
  ];
  const body = await pod.holds({ runId: "large", threadId: "large", steps: calling(...calls) });
  const [interrupt] = waitingOf(body.frames)?.interrupts ?? [];
  expect(interrupt?.toolCallId).toBe("p");
  const picked = "</x>".repeat(50 << 10);
  expect(await pod.answer("large", [resolved(interrupt, { picked })])).toMatchObject({ status: 200 });
  await body.ended;
  const carried = pod.callbacks.filter(({ body: { runId } }) => runId === "large");
  expect(carried.map(({ body: order }) => (order.arguments as { key: string }).key.length)).toEqual([large.length]);
  expect(resultOf(body.frames, "e").text).toStartWith(
    "the person could not be asked: what is to be asked is too large",
  );
  expect(JSON.parse(resultOf(body.frames, "p").text)).toEqual({ picked });
  expect(resultOf(body.frames, "p").text).not.toContain("<");
  expect((await readMessage(chunksIn(body.frames))).errors).toEqual([]);
});

test.concurrent("a cancel while an approved call is carried out leaves a whole message, and the callback is called off", async () => {
  let calledOff = false;
  pod.hang = { toolCallId: "slow", onAbort: () => (calledOff = true) };
  const turn = {
    runId: "slow",
    threadId: "slow",
    steps: calling({ id: "slow", name: "erase", input: { what: "one" } }),
  };
  const body = await pod.holds(turn);
  const [interrupt] = waitingOf(body.frames)?.interrupts ?? [];
  expect(await pod.answer("slow", [resolved(interrupt, { approved: true })])).toMatchObject({ status: 200 });
  await body.until(({ frames }) => waitingOf(frames)?.interrupts.length === 0);
  await eventually(() => pod.callbacks.some(({ body: order }) => order.toolCallId === "slow"));
  await pod.daemon.cancel("slow", "?wait=1");
  await body.ended;
  expect(typesOf(body.frames, "slow")).toEqual(["tool-input-available", "tool-approval-request", "tool-output-error"]);
  expect(chunksIn(body.frames, "tool-approval-response")).toMatchObject([{ approved: true }]);
  expect((await readMessage(chunksIn(body.frames))).errors).toEqual([]);
  await eventually(() => calledOff);
});
