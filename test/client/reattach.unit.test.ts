/** The table that decides whether a turn could run twice, every row of it. */
import { describe, expect, test } from "bun:test";
import { RefusedError } from "../../src/client/errors.ts";
import { type Course, judgeRefusal, nextRequest, type Position } from "../../src/client/reattach.ts";
import { HTTP_STATUS, type HttpErrorCode } from "../../src/errors.ts";

const input = { threadId: "t", userMessage: "m" };
const dispatch: Course = {
  type: "dispatch",
  runId: "r",
  input,
  takeover: false,
  after: 0,
  attempt: undefined,
  headers: {},
};
const attach: Course = { type: "attach", runId: "r/1", after: 0, attempt: undefined, headers: {} };
const fresh: Position = { attempt: undefined, lastSeq: 0, sent: 0, reader: false, cancelled: false, tombstoned: false };
const begun: Position = { ...fresh, attempt: 2, sent: 1 };

describe("the next request", () => {
  const rows: [string, Course, Position, string, Record<string, unknown> | string][] = [
    ["the first", dispatch, fresh, "POST", { runId: "r", after: 0, input }],
    ["again, before an answer came", dispatch, { ...fresh, sent: 1 }, "POST", { runId: "r", after: 0, input }],
    ["the first of a takeover", { ...dispatch, takeover: true }, fresh, "POST", { runId: "r", input }],
    [
      "a takeover that may have arrived",
      { ...dispatch, takeover: true },
      { ...fresh, sent: 1 },
      "POST",
      { runId: "r", after: 0, input },
    ],
    ["begun, without a frame: nothing that could start", dispatch, begun, "GET", "runs/r/frames?after=0&attempt=2"],
    [
      "begun as a takeover, without a frame",
      { ...dispatch, takeover: true },
      begun,
      "GET",
      "runs/r/frames?after=0&attempt=2",
    ],
    ["with frames", dispatch, { ...begun, lastSeq: 7 }, "POST", { runId: "r", after: 7, attempt: 2, input }],
    ["displaced", dispatch, { ...begun, lastSeq: 7, reader: true }, "GET", "runs/r/frames?after=7&attempt=2"],
    [
      "from a known place",
      { ...dispatch, after: 5, attempt: 3 },
      { ...fresh, lastSeq: 5 },
      "POST",
      { runId: "r", after: 5, attempt: 3, input },
    ],
    ["a reader", attach, { ...fresh, reader: true }, "GET", "runs/r%2F1/frames?after=0"],
    ["a reader of an attempt", { ...attach, attempt: 4 }, fresh, "GET", "runs/r%2F1/frames?after=0&attempt=4"],
  ];
  test.each(rows)("%s", (_name, course, position, method, expected) => {
    const request = nextRequest(course, position);
    expect(request.method).toBe(method as "GET");
    if (typeof expected === "string") expect(request).toMatchObject({ path: expected });
    else expect(JSON.parse(request.body ?? "")).toEqual(expected);
  });

  test("that could start a turn is never sent once the run has begun", () => {
    for (const takeover of [true, false]) {
      for (const lastSeq of [0, 1, 100]) {
        for (const reader of [true, false]) {
          const { method, body = "{}" } = nextRequest({ ...dispatch, takeover }, { ...begun, lastSeq, reader });
          expect(method === "GET" || JSON.parse(body).after > 0).toBe(true);
        }
      }
    }
  });
});

describe("a refusal", () => {
  const refusal = (code: HttpErrorCode | "", status = 400, body: Record<string, unknown> = {}) =>
    new RefusedError(code === "" ? status : HTTP_STATUS[code], code, undefined, undefined, body);

  test.each([
    "unauthorized",
    "not_found",
    "method_not_allowed",
    "body_too_large",
    "bad_json",
    "missing_run_id",
    "bad_input",
    "run_conflict",
    "bad_after",
    "stale",
    "internal",
  ] as const)("%s ends it, before and after the beginning", (code) => {
    for (const position of [fresh, begun]) {
      expect(judgeRefusal(refusal(code), dispatch, position)).toMatchObject({
        type: "end",
        ending: { type: "refused", code, status: HTTP_STATUS[code] },
      });
    }
  });

  test.each([
    ["superseded", dispatch, begun, "lost"],
    ["unknown_run", dispatch, begun, "lost"],
    ["unknown_run", attach, fresh, "end"],
    ["unknown_run", { ...attach, attempt: 2 }, fresh, "lost"],
    ["tombstoned", dispatch, fresh, "end"],
    ["tombstoned", dispatch, { ...fresh, sent: 1 }, "end"],
    ["tombstoned", dispatch, { ...fresh, sent: 2 }, "read"],
    ["tombstoned", dispatch, begun, "read"],
    ["draining", dispatch, fresh, "retry-start"],
    ["too_many_runs", dispatch, fresh, "retry-start"],
    ["too_many_readers", attach, fresh, "end"],
    ["too_many_readers", attach, begun, "retry"],
    ["ended", dispatch, fresh, "end"],
  ] as const)("%s, row %#", (code, course, position, type) => {
    expect(judgeRefusal(refusal(code), course as Course, position).type).toBe(type);
  });

  test("ended brings the outcome", () => {
    const outcome = { type: "finished" };
    const verdict = judgeRefusal(refusal("ended", 410, { outcome, settled: { saved: true } }), dispatch, fresh);
    expect(verdict).toEqual({ type: "outcome", outcome: { type: "finished" }, settled: { saved: true } });
  });

  test("a tombstoned run that nobody remembers was cancelled", () => {
    const tombstoned = { ...begun, reader: true, tombstoned: true };
    for (const code of ["unknown_run", "tombstoned"] as const) {
      expect(judgeRefusal(refusal(code), dispatch, tombstoned)).toMatchObject({ ending: { type: "cancelled" } });
    }
  });

  test.each([
    [502, "retry"],
    [503, "retry"],
    [504, "retry"],
    [500, "end"],
    [403, "end"],
  ] as const)("%d of a proxy: %s", (status, type) => {
    expect(judgeRefusal(refusal("", status), dispatch, begun).type).toBe(type);
  });
});
