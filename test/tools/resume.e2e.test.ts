/** A later dispatch brings the answers and the suspension: what resumes, what is stale, and that nothing starts then. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Frame } from "../../src/frames/frame.ts";
import type { TurnAnswer } from "../../src/harness/port.ts";
import { parseKeyList } from "../../src/key-list.ts";
import { readUnverified, signToken, unsignedToken } from "../../src/suspension/token.ts";
import type { AnswerEntry } from "../../src/tools/port.ts";
import { AskingPod, calling, chunksIn, ERASE, keyOf, LOOK_UP, PICK, typesOf } from "../support/asking-pod.ts";
import { parseFrames } from "../support/daemon.ts";
import { readMessage } from "../support/read-message.ts";
import { CLOSE, FINISHED, OPEN } from "../support/scripted-harness.ts";
import { outcomeOf, resolved, type Suspended } from "../support/tools-pod.ts";

const KEY = keyOf("k1", "a");
const CALLS = [
  { id: "p", name: "pick", input: { from: ["a", "b"] } },
  { id: "e", name: "erase", input: { what: "one" } },
];

let pod: AskingPod;
beforeAll(async () => {
  pod = await AskingPod.start({ env: { SUSPENSION_KEYS: KEY } });
});
afterAll(async () => {
  await pod[Symbol.asyncDispose]();
});

type Asked = Suspended & { readonly threadId: string };

let threads = 0;
/** A turn on a thread of its own that ended with two questions. */
async function ask(input: Readonly<Record<string, unknown>> = {}, on = pod): Promise<Asked> {
  const threadId = `thread ${++threads}`;
  const asked = await on.asks({ runId: `asks on ${threadId}`, threadId, steps: calling(...CALLS), input });
  // Both calls are made at once, and asked in the order in which they came.
  const interrupts = CALLS.flatMap(({ id }) => asked.interrupts.filter(({ toolCallId }) => toolCallId === id));
  return { ...asked, interrupts, threadId };
}

const answersTo = ({ interrupts: [p, e] }: Suspended, approval: object = { approved: true }): AnswerEntry[] => [
  resolved(p, { picked: "b" }),
  resolved(e, approval),
];

/** What the harness was started with, in the order of the calls. */
function handedOver(frames: readonly Frame[]): readonly TurnAnswer[] {
  const data = chunksIn(frames, "data-answers").flatMap((chunk) => chunk.data as TurnAnswer[]);
  return CALLS.flatMap(({ id }) => data.filter(({ toolCallId }) => toolCallId === id));
}

interface Refusal {
  readonly error: string;
  readonly interruptId?: string;
  readonly reason: string;
  readonly dead: boolean;
}

/** The refusal of a resume, after which nothing is there of its run. */
async function refusal(asked: Asked, input: Readonly<Record<string, unknown>>, on = pod): Promise<Refusal> {
  const runId = `refused on ${asked.threadId} ${crypto.randomUUID()}`;
  const known = { answers: answersTo(asked), suspension: asked.suspension };
  const response = await on.dispatch({ runId, threadId: asked.threadId, input: { ...known, ...input } });
  const body = (await response.json()) as Refusal;
  expect([response.status, body.error]).toEqual([409, "stale"]);
  expect((await on.daemon.fetch(`/runs/${runId}`)).status).toBe(404);
  expect(await on.daemon.starts()).not.toContain(`${runId}#1`);
  return body;
}

const claimsOf = (token: string): Record<string, unknown> => JSON.parse(readUnverified(token)?.claims ?? "{}");

/** The token with other claims, signed as this pod signs. */
async function signedAgain(token: string, change: (claims: Record<string, unknown>) => object): Promise<string> {
  const keys = parseKeyList(KEY);
  const [key] = typeof keys === "string" ? [] : keys;
  if (!key) throw new Error("no key");
  return signToken(JSON.stringify(change(claimsOf(token))), key, undefined);
}

test.concurrent("a resume carries out what was approved, once, hands over each answer, and a new reader has all of it", async () => {
  const asked = await ask();
  const { threadId, suspension } = asked;
  const frames = await pod.turn({ runId: "resumes", threadId, input: { answers: answersTo(asked), suspension } });
  expect(outcomeOf(frames)?.type).toBe("finished");
  const carried = pod.callbacks.filter(({ body }) => body.threadId === threadId);
  expect(carried.map(({ body, headers }) => [body, headers["idempotency-key"], headers["x-secret"]])).toEqual([
    [
      { runId: "resumes", threadId, toolCallId: "e", toolName: "erase", arguments: { what: "one" } },
      `asks%20on%20thread%20${threadId.split(" ")[1]}:e`,
      "callback-secret-0123456789",
    ],
  ]);
  expect(handedOver(frames)).toMatchObject([
    { toolCallId: "p", toolName: "pick", input: CALLS[0]?.input, text: '{"picked":"b"}', isError: false },
    { toolCallId: "e", toolName: "erase", input: CALLS[1]?.input, text: "done", isError: false },
  ]);
  expect(typesOf(frames, "e")).toEqual(["tool-input-available", "tool-approval-request", "tool-output-available"]);
  const { message, errors } = await readMessage(chunksIn(frames));
  expect(errors).toEqual([]);
  expect(message?.parts).toContainEqual(
    expect.objectContaining({ toolCallId: "p", state: "output-available", output: { picked: "b" } }),
  );
  expect(message?.parts).toContainEqual(
    expect.objectContaining({ toolCallId: "e", state: "output-available", output: "done" }),
  );
  expect(JSON.stringify([frames, pod.daemon.log])).not.toContain("callback-secret");
  expect(JSON.stringify(pod.daemon.log)).not.toContain(suspension);
});

test.concurrent("what was denied is not carried out, and the harness and a new reader are told", async () => {
  const asked = await ask();
  const { threadId, suspension } = asked;
  const answers = answersTo(asked, { approved: false, reason: "no" });
  const frames = await pod.turn({ runId: "denied", threadId, input: { answers, suspension } });
  expect(pod.callbacks.filter(({ body }) => body.threadId === threadId)).toEqual([]);
  expect(handedOver(frames)[1]).toMatchObject({
    toolCallId: "e",
    text: '{"denied":true,"reason":"no"}',
    isError: true,
  });
  expect(typesOf(frames, "e").at(-1)).toBe("tool-output-denied");
  const { message, errors } = await readMessage(chunksIn(frames));
  expect(errors).toEqual([]);
  expect(message?.parts).toContainEqual(expect.objectContaining({ toolCallId: "e", state: "output-denied" }));
});

test.concurrent("one run alone may use a suspension; another is told which, and the same one is replayed", async () => {
  const asked = await ask();
  const { threadId, suspension } = asked;
  const input = { answers: answersTo(asked), suspension };
  const first = await pod.turn({ runId: "first", threadId, input });
  // Spelled otherwise, it is the same one.
  const respelled = await signedAgain(suspension, (claims) => ({ ...claims }));
  for (const [runId, token] of [
    ["second", suspension],
    ["third", respelled],
  ] as const) {
    const frames = await pod.turn({ runId, threadId, input: { ...input, suspension: token } });
    const error = { code: "stale", interruptId: expect.stringMatching(/^[0-9a-f]{32}$/), dead: true } as const;
    expect(frames.at(-1)?.error).toMatchObject({ ...error, message: "the suspension was used by the run first" });
    expect(outcomeOf(frames)).toMatchObject({ type: "failed", error });
    expect(await pod.daemon.starts()).not.toContain(`${runId}#1`);
  }
  expect(await pod.turn({ runId: "first", threadId, input })).toEqual(first);
  expect(pod.callbacks.filter(({ body }) => body.threadId === threadId)).toHaveLength(1);
});

test.concurrent("a run that cannot be begun uses no suspension, and carries nothing out", async () => {
  const asked = await ask();
  const { threadId, suspension } = asked;
  const input = { answers: answersTo(asked), suspension };
  const runId = `before the checkout of ${threadId}`;
  const frames = await pod.turn({ runId, threadId, input: { ...input, workspace: { cwd: "/repo" } } });
  expect(outcomeOf(frames)).toMatchObject({ type: "failed", error: { code: "turn_failed" } });
  expect(pod.callbacks.filter(({ body }) => body.threadId === threadId)).toEqual([]);
  const next = await pod.turn({ runId: `after the checkout of ${threadId}`, threadId, input });
  expect(outcomeOf(next)?.type).toBe("finished");
  expect(pod.callbacks.filter(({ body }) => body.threadId === threadId)).toHaveLength(1);
});

test.concurrent.each([undefined, "", "plan"])("a plan that is resumed with the mode %p stays one", async (mode) => {
  const asked = await ask({ mode: "plan" });
  const { threadId, suspension, interrupts } = asked;
  const path = pod.daemon.path(`document of ${threadId}`);
  const steps = [{ touch: path, document: true }];
  const resumed = { answers: answersTo(asked), suspension, interrupts };
  await pod.turn({
    runId: `goes on with ${threadId}`,
    threadId,
    input: { ...resumed, steps, ...(mode === undefined ? {} : { mode }) },
  });
  const document = await Bun.file(path).json();
  expect(document.input.mode).toBe("plan");
  // Nor is it in what the client sends back beside it.
  expect(JSON.stringify(document)).not.toContain(suspension);
});

test.concurrent("two that resume at once: one goes on, the other is told which, and ends nobody", async () => {
  const asked = await ask();
  const { threadId, suspension } = asked;
  const input = { answers: answersTo(asked), suspension };
  const both = await Promise.all(["one", "other"].map((runId) => pod.dispatch({ runId, threadId, input })));
  const [goesOn, refused] = both.sort((a, b) => a.status - b.status);
  expect([goesOn?.status, refused?.status]).toEqual([200, 409]);
  expect(outcomeOf(parseFrames((await goesOn?.text()) ?? ""))?.type).toBe("finished");
  const error = { error: "stale", interruptId: expect.any(String) };
  expect(await refused?.json()).toMatchObject({
    ...error,
    reason: expect.stringMatching(/^the suspension (was|is about to be) used by the run (one|other)$/),
  });
  expect(pod.callbacks.filter(({ body }) => body.threadId === threadId)).toHaveLength(1);
  expect((await pod.daemon.starts()).filter((start) => /^(one|other)#/.test(start))).toHaveLength(1);
});

test.concurrent("a suspension that was used ends no later turn of the thread", async () => {
  const asked = await ask();
  const { threadId, suspension } = asked;
  await pod.turn({ runId: `used ${threadId}`, threadId, input: { answers: answersTo(asked), suspension } });
  const go = pod.daemon.path(`go on ${threadId}`);
  const later = await pod.dispatch({
    runId: `later ${threadId}`,
    threadId,
    steps: [OPEN, { waitFor: go }, CLOSE, FINISHED],
  });
  expect(await refusal(asked, {})).toMatchObject({
    reason: `the suspension was used by the run used ${threadId}`,
    dead: true,
  });
  await Bun.write(go, "");
  expect(outcomeOf(parseFrames(await later.text()))?.type).toBe("finished");
});

test.concurrent("a token that was tampered with is stale for good, however it was", async () => {
  const asked = await ask();
  const { suspension } = asked;
  const [header = "", payload = "", signature = ""] = suspension.split(".");
  const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const changed = Buffer.from(Buffer.from(payload, "base64url").toString().replace('"one"', '"all"')).toString(
    "base64url",
  );
  expect(changed).not.toBe(payload);
  const tampered: [string, string][] = [
    [`${header}.${changed}.${signature}`, "signature does not verify"],
    [suspension.slice(0, -10), "signature does not verify"],
    [suspension.slice(0, header.length + 20), "no header of ours"],
    [`${encode({ alg: "none", typ: "dispatchd-suspension+jwt", kid: "k1" })}.${payload}.`, "algorithm is not ours"],
    [`${encode({ alg: "none" })}.${payload}.${signature}`, "algorithm is not ours"],
    [`${encode({ alg: "HS256", typ: "JWT", kid: "k1" })}.${payload}.${signature}`, "type is not ours"],
    [`${encode({ alg: "HS256", typ: "dispatchd-suspension+jwt", kid: "k9" })}.${payload}.${signature}`, "not listed"],
    [unsignedToken(JSON.stringify(claimsOf(suspension))), "is not signed"],
    ["", "no header of ours"],
  ];
  for (const [token, reason] of tampered) {
    const refused = await refusal(asked, { suspension: token });
    expect(refused).toMatchObject({ interruptId: asked.interrupts[0]?.id, dead: true });
    expect(refused.reason).toContain(reason);
  }
  expect(await refusal(asked, { suspension: undefined })).toMatchObject({ dead: false });
  expect(pod.callbacks.filter(({ body }) => body.threadId === asked.threadId)).toEqual([]);
});

test.concurrent("a suspension is good on its thread, in its organization and in its time", async () => {
  const asked = await ask();
  const { suspension } = asked;
  expect(await refusal({ ...asked, threadId: "another" }, {})).toMatchObject({ dead: true });
  expect(await refusal(asked, { organizationId: "another" })).toMatchObject({ dead: true });
  const expired = await signedAgain(suspension, (claims) => ({ ...claims, exp: Math.floor(Date.now() / 1000) - 61 }));
  expect(await refusal(asked, { suspension: expired })).toMatchObject({
    ...{ interruptId: asked.interrupts[0]?.id, reason: "the suspension has expired", dead: true },
  });
  const endless = await signedAgain(suspension, ({ exp: _, ...claims }) => claims);
  expect(await refusal(asked, { suspension: endless })).toMatchObject({ dead: true });
  const ahead = await signedAgain(suspension, (claims) => ({ ...claims, iat: Math.floor(Date.now() / 1000) + 120 }));
  expect(await refusal(asked, { suspension: ahead })).toMatchObject({ dead: false });
});

test.concurrent("tools that changed since the question make it stale for good", async () => {
  const asked = await ask();
  const [p, e] = asked.interrupts;
  const changes: [readonly unknown[], string | undefined][] = [
    [[{ ...PICK, inputSchema: { type: "object" } }, LOOK_UP, ERASE], p?.id],
    [[{ ...PICK, responseSchema: { type: "object" } }, LOOK_UP, ERASE], p?.id],
    [[PICK, LOOK_UP, { ...ERASE, permission: "allow" }], e?.id],
    [[PICK, LOOK_UP, { ...ERASE, permission: "deny" }], e?.id],
    [[PICK, LOOK_UP], e?.id],
  ];
  for (const [tools, interruptId] of changes) {
    expect(await refusal(asked, { tools })).toMatchObject({ interruptId, dead: true });
  }
  // What a person did not see of a tool may change.
  const tools = [{ ...PICK, description: "Another." }, { ...LOOK_UP, inputSchema: { type: "object" } }, ERASE];
  const { threadId, suspension } = asked;
  const frames = await pod.turn({
    runId: "described",
    threadId,
    input: { answers: answersTo(asked), suspension, tools },
  });
  expect(outcomeOf(frames)?.type).toBe("finished");
});

test.concurrent("answers that are not those to its questions can be mended, and then it resumes", async () => {
  const asked = await ask();
  const [p, e] = answersTo(asked);
  if (!p || !e) throw new Error("no answers");
  const wrong: [readonly AnswerEntry[], string][] = [
    [[p], e.interruptId],
    [[p, e, { interruptId: "none", status: "cancelled" }], "none"],
    [[p, e, p], p.interruptId],
    [[{ ...p, payload: { picked: 1 } }, e], p.interruptId],
    [[p, { ...e, payload: { approved: true, input: { what: "all" } } }], e.interruptId],
    [[{ ...p, payload: { picked: "x".repeat(256 << 10) } }, e], p.interruptId],
  ];
  for (const [answers, interruptId] of wrong) {
    expect(await refusal(asked, { answers })).toMatchObject({ interruptId, dead: false });
  }
  const shown = asked.interrupts.map((interrupt) => ({
    ...interrupt,
    metadata: { ...interrupt.metadata, input: { what: "all" } },
  }));
  expect(await refusal(asked, { interrupts: shown })).toMatchObject({ interruptId: p.interruptId, dead: false });
  const { threadId, suspension, interrupts } = asked;
  const input = { answers: [e, p], suspension, interrupts };
  expect(outcomeOf(await pod.turn({ runId: "mended", threadId, input }))?.type).toBe("finished");
});

test.concurrent("keys that rotate leave what is suspended good, until the old one is retired", async () => {
  await using rotating = await AskingPod.start({ env: { SUSPENSION_KEYS: KEY, SUSPENSION_TTL_MS: "5000" } });
  const configure = async (suspensionKeys: string): Promise<void> => {
    const body = JSON.stringify({ suspensionKeys });
    expect((await rotating.daemon.fetch("/config", { method: "POST", body })).status).toBe(204);
  };
  const [one, two] = [await ask({}, rotating), await ask({}, rotating)];
  const until = Date.parse(one.interrupts[0]?.expiresAt ?? "");
  expect(Math.abs(until - Date.now() - 5000)).toBeLessThan(4000);
  await configure(`${keyOf("k2", "b")},${KEY}`);
  const answers = answersTo(one);
  const { threadId, suspension } = one;
  const resumed = await rotating.turn({ runId: "rotated", threadId, input: { answers, suspension } });
  expect(outcomeOf(resumed)?.type).toBe("finished");
  const three = await ask({}, rotating);
  expect(readUnverified(three.suspension)?.keyId).toBe("k2");
  await configure(keyOf("k2", "b"));
  const retired = await refusal(two, {}, rotating);
  expect(retired).toMatchObject({ interruptId: two.interrupts[0]?.id, dead: true });
  expect(retired.reason).toContain("key is not listed");
  const again = { answers: answersTo(three), suspension: three.suspension };
  expect(outcomeOf(await rotating.turn({ runId: "newer", threadId: three.threadId, input: again }))?.type).toBe(
    "finished",
  );
});

test.concurrent("a daemon without a key signs nothing, says so, and reads nothing that is signed", async () => {
  await using open = await AskingPod.start({ env: { SUSPENSION_KEYS: undefined } });
  const asked = await ask({}, open);
  expect(asked.suspension).toStartWith("unsigned.");
  expect(open.daemon.log.filter(({ warning }) => String(warning).includes("SUSPENSION_KEYS"))).toHaveLength(1);
  const signed = await signedAgain(asked.suspension, (claims) => claims);
  expect(await refusal(asked, { suspension: signed }, open)).toMatchObject({ dead: true });
  const { threadId, suspension } = asked;
  const frames = await open.turn({ runId: "resumes", threadId, input: { answers: answersTo(asked), suspension } });
  expect(outcomeOf(frames)?.type).toBe("finished");
});

test.concurrent("a known run is taken up whatever its dispatch says of answers", async () => {
  const asked = await ask();
  const { threadId } = asked;
  const runId = `asks on ${threadId}`;
  const replayed = await pod.turn({ runId, threadId, input: { answers: answersTo(asked), suspension: "cut" } });
  expect(outcomeOf(replayed)).toMatchObject({ type: "interrupt", suspension: asked.suspension });
});
