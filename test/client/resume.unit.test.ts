/** Answers and the dispatch that brings them: what is sent, and what is refused before anything is. */
import { describe, expect, test } from "bun:test";
import { answer, approve, cancel, checkAnswers, deny } from "../../src/client/answers.ts";
import type * as client from "../../src/client/index.ts";
import { resumeInput } from "../../src/client/resume.ts";
import type { AnswerEntry, Interrupt } from "../../src/tools/port.ts";

function interrupt(id: string): client.Interrupt {
  const metadata = { toolName: "connect", input: {} };
  return { id, reason: "dispatchd:client_tool", toolCallId: `call-${id}`, expiresAt: "2026-01-02T03:04:05Z", metadata };
}
const two = [interrupt("a"), interrupt("b")];

test("the client's types are the daemon's", () => {
  // Checked by the compiler: each can be assigned to the other.
  const toClient: (from: Interrupt) => client.Interrupt = (from) => from;
  const toDaemon: (from: client.Interrupt) => Interrupt = (from) => from;
  const sent: (from: client.Answer) => AnswerEntry = (from) => from;
  const read: (from: AnswerEntry) => client.Answer = (from) => from;
  expect([toClient, toDaemon, sent, read]).toHaveLength(4);
});

describe("answers", () => {
  test("are AG-UI's resume entries, of a question or its id", () => {
    const [a = interrupt("")] = two;
    expect(approve(a)).toEqual({ interruptId: "a", status: "resolved", payload: { approved: true } });
    expect(deny("a")).toEqual({ interruptId: "a", status: "resolved", payload: { approved: false } });
    expect(deny("a", "no")).toEqual({
      interruptId: "a",
      status: "resolved",
      payload: { approved: false, reason: "no" },
    });
    expect(answer(a, [1])).toEqual({ interruptId: "a", status: "resolved", payload: [1] });
    expect(cancel("a")).toEqual({ interruptId: "a", status: "cancelled" });
  });

  test("are good when each question has one", () => {
    expect(() => checkAnswers(two, [cancel("b"), approve("a")])).not.toThrow();
    expect(() => checkAnswers([], [])).not.toThrow();
  });

  test.each([
    [[approve("a")], { problem: "missing", interruptId: "b" }],
    [[approve("a"), approve("b"), approve("c")], { problem: "unknown", interruptId: "c" }],
    [[approve("a"), approve("b"), deny("a")], { problem: "twice", interruptId: "a" }],
    [[], { problem: "missing", interruptId: "a" }],
  ])("are refused by name: %p", (answers, problem) => {
    expect(() => checkAnswers(two, answers)).toThrow(expect.objectContaining({ name: "AnswersError", ...problem }));
  });
});

test("a run that was lost while it waited is resumed without what a subagent asked", () => {
  const inside: client.Interrupt = {
    ...interrupt("s"),
    metadata: { toolName: "connect", input: {}, inSubagent: true },
  };
  const waiting = { interrupts: [...two, inside], suspension: "signed", until: "2026-01-02T03:04:05Z" };
  const answers = [approve("a"), cancel("b")];
  const order = { input: { threadId: "t" }, suspended: waiting, answers };
  expect(resumeInput(order)).toMatchObject({ threadId: "t", answers, suspension: "signed" });
  expect(() => resumeInput({ ...order, answers: [...answers, approve("s")] })).toThrow(
    expect.objectContaining({ problem: "unknown", interruptId: "s" }),
  );
});

describe("the input of the next run", () => {
  const input: client.DispatchInput = {
    threadId: "t",
    userMessage: "hello",
    answers: [cancel("earlier")],
    suspension: "earlier",
    resume: { reason: "restarted" },
    sessionGeneration: "1",
    organizationId: "o",
    mode: "plan",
    tools: [{ name: "connect", description: "", inputSchema: {}, kind: "client" }],
    callback: { url: "https://host.invalid/", headers: { authorization: "s3cr3t" } },
    clientTools: { holdSeconds: 5 },
    env: { KEY: "k" },
    unknown: { kept: true },
  };
  const answers = [approve("a"), cancel("b")];
  const { userMessage: _, resume: __, ...essentials } = input;

  test("is that of the suspended one, without what it said", () => {
    expect(resumeInput({ input, suspended: { interrupts: two, suspension: "token" }, answers })).toEqual({
      ...essentials,
      answers,
      suspension: "token",
    });
  });

  test("says which save to wait for, and what the caller changed", () => {
    const suspended = { interrupts: two, suspension: "token", settled: { saved: true, generation: "7" } };
    const changes = { env: { KEY: "new" }, mode: "default" };
    const next = resumeInput({ input, suspended, answers, userMessage: "and hurry", changes });
    expect(next).toEqual({
      ...essentials,
      ...changes,
      sessionGeneration: "7",
      userMessage: "and hurry",
      answers,
      suspension: "token",
    });
    expect(resumeInput({ input, suspended, answers, changes: { sessionGeneration: "8" } }).sessionGeneration).toBe("8");
  });

  test("has no suspension where the daemon gave none", () => {
    expect("suspension" in resumeInput({ input, suspended: { interrupts: two }, answers })).toBe(false);
  });

  test("is not made from answers that do not fit", () => {
    expect(() => resumeInput({ input, suspended: { interrupts: two }, answers: [approve("a")] })).toThrow(
      'the question "b" is not answered',
    );
  });
});
