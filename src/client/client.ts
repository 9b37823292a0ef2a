/** The daemon's routes as functions. */
import type { Clock } from "../clock/port.ts";
import { systemClock } from "../clock/system.ts";
import { ProofError, ProtocolError } from "./errors.ts";
import { Follower, type Patience } from "./follow-run.ts";
import { verifyHealthProof } from "./health-proof.ts";
import { postAnswers } from "./post-answers.ts";
import type { Course } from "./reattach.ts";
import { resumeInput, type Suspended } from "./resume.ts";
import { Run, type RunResumeOptions } from "./run.ts";
import { createTransport, type Fetch, parseObject, type Request, type TokenSource } from "./transport.ts";
import type { Answer, ConfigUpdate, DispatchInput, Health, Idle, RunSummary, Waiting } from "./wire.ts";

/** All spans in milliseconds. */
export interface ClientOptions extends Partial<Patience> {
  /** Where the daemon listens, with `/_sandbox` behind it if need be. */
  readonly url: string;
  /** The bearer token, or a function that is asked for it before every request. */
  readonly token: TokenSource;
  /** In place of the platform's. It must not follow redirects by itself nor repeat a request. */
  readonly fetch?: Fetch;
  /** For the answer of every route that does not stream. Default 10,000. */
  readonly requestMs?: number;
  /** For tests. */
  readonly clock?: Clock;
}

export interface DispatchOptions {
  readonly input: DispatchInput;
  /** Made up when missing. The same id again never starts a second turn: it follows the first. */
  readonly runId?: string;
  /** Go on behind this frame of a run that was dispatched before; such a dispatch never starts anything. */
  readonly after?: number;
  /** Only this attempt; a newer one ends the run as `superseded`. */
  readonly attempt?: number;
  /** If the run is being carried out and has an owner: end that attempt and start the next. Asked for once. */
  readonly takeover?: boolean;
  /** Called for each `waiting` frame as it is read, whoever reads. Answer with `run.answer`. */
  readonly onWaiting?: (waiting: Waiting, run: Run) => void;
  /** Stops reading; the run goes on. */
  readonly signal?: AbortSignal;
  /** Sent along, for example `traceparent`. */
  readonly headers?: Readonly<Record<string, string>>;
}

export interface AttachOptions {
  /** Begin behind this frame. Default 0: with the first. */
  readonly after?: number;
  /** Only this attempt. Default: the newest. */
  readonly attempt?: number;
  readonly onWaiting?: (waiting: Waiting, run: Run) => void;
  readonly signal?: AbortSignal;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface ResumeOptions extends Omit<RunResumeOptions, "input"> {
  /** What the suspended run was dispatched with; its message is left out. */
  readonly input: DispatchInput;
}

export interface Client {
  /**
   * Starts a run, or follows it from its first frame where the id is known; cuts are bridged. How it ends, refusals
   * included, is `run.result()`. Throws TypeError for a run id that no URL can name, and for an input that is no JSON.
   */
  dispatch(options: DispatchOptions): Run;
  /** Reads a run that somebody dispatched, without becoming its owner. */
  attach(runId: string, options?: AttachOptions): Run;
  /**
   * Goes on with a suspended run, also one whose result was stored: as `run.resume`, where the run itself is not at hand.
   * Throws AnswersError when a question has no answer, or an answer no question.
   */
  resume(suspended: Suspended, answers: readonly Answer[], options: ResumeOptions): Run;
  /** As `run.answer`, for a run that somebody else follows. */
  answer(runId: string, answers: readonly Answer[]): Promise<number>;
  /** Ends a run, also one that nobody knows yet. `wait`: resolves when its processes are gone. */
  cancel(runId: string, options?: { wait?: boolean }): Promise<void>;
  runs(): Promise<readonly RunSummary[]>;
  /** RefusedError with `unknown_run`, or with `ended` when little is left of it. */
  run(runId: string): Promise<RunSummary>;
  /** With a nonce (random, used once) the answer is checked against the token: ProofError when it is not the daemon's. */
  health(options?: { nonce?: string; timeoutMs?: number }): Promise<Health>;
  idle(): Promise<Idle>;
  /** For later runs. A new token is used by this client from then on, unless its token is a function. */
  setConfig(update: ConfigUpdate): Promise<void>;
  /** Prometheus text. */
  metrics(): Promise<string>;
}

const PATIENCE: Patience = {
  // Six keepalives of the daemon.
  silenceMs: 90_000,
  retryBaseMs: 200,
  retryCapMs: 5000,
  connectForMs: 90_000,
  settledForMs: 5000,
  startRetries: 0,
};
const REQUEST_MS = 10_000;
/** What a cancel may take: the takeover timeout, the kill ladder, and a margin. */
const CANCEL_WAIT_MS = 60_000;

/** A client of one daemon. Every call but `dispatch` and `attach` throws RefusedError or UnreachableError. */
export function createClient(options: ClientOptions): Client {
  const { clock = systemClock, requestMs = REQUEST_MS, fetch = globalThis.fetch as Fetch } = options;
  const patience = readPatience(options);
  let fixed = typeof options.token === "string" ? options.token : undefined;
  const token = async (): Promise<string> => {
    const given = fixed ?? (typeof options.token === "string" ? options.token : await options.token());
    return checkToken(given);
  };
  const transport = createTransport({ url: options.url, token, fetch, clock });

  const follow = (course: Course, { signal, onWaiting }: Pick<DispatchOptions, "signal" | "onWaiting">): Run =>
    new Run({
      runId: course.runId,
      follow: (observer, stop) => new Follower(transport, clock, patience, course, observer, stop),
      cancel: (how) => cancel(course.runId, how),
      answer: (answers) => answer(course.runId, answers),
      resume(suspended, answers, { input: changes, ...options }) {
        if (course.type === "dispatch") return resume(suspended, answers, { ...options, input: course.input }, changes);
        if (changes?.threadId === undefined) {
          throw new TypeError("a run that was attached to is resumed with options.input: what it was dispatched with");
        }
        return resume(suspended, answers, { ...options, input: { ...changes, threadId: changes.threadId } });
      },
      onWaiting,
      signal,
    });

  function dispatch(options: DispatchOptions): Run {
    const { input, runId = crypto.randomUUID(), after = 0, attempt, takeover = false, headers = {} } = options;
    runPath(runId);
    return follow({ type: "dispatch", input: copyOf(input), takeover, runId, after, attempt, headers }, options);
  }

  function resume(
    suspended: Suspended,
    answers: readonly Answer[],
    { input, userMessage, ...options }: ResumeOptions,
    changes?: Partial<DispatchInput>,
  ): Run {
    return dispatch({ ...options, input: resumeInput({ input, suspended, answers, userMessage, changes }) });
  }

  async function answer(runId: string, answers: readonly Answer[]): Promise<number> {
    return postAnswers({ transport, clock, patience, requestMs, path: `${runPath(runId)}/answers`, answers });
  }

  async function getObject(request: Omit<Request, "method">, timeoutMs = requestMs): Promise<Record<string, unknown>> {
    const { text } = await transport.call({ method: "GET", ...request }, timeoutMs);
    const value = parseObject(text);
    if (value === undefined) throw new ProtocolError(`GET ${request.path}: the answer is no JSON object`);
    return value;
  }

  async function cancel(runId: string, { wait = false }: { wait?: boolean } = {}): Promise<void> {
    const path = `${runPath(runId)}${wait ? "?wait=1" : ""}`;
    await transport.call({ method: "DELETE", path }, wait ? CANCEL_WAIT_MS : requestMs);
  }

  return {
    dispatch,
    attach(runId, options = {}) {
      const { after = 0, attempt, headers = {} } = options;
      runPath(runId);
      return follow({ type: "attach", runId, after, attempt, headers }, options);
    },
    resume: (suspended, answers, options) => resume(suspended, answers, options),
    answer,
    cancel,
    async runs() {
      const { runs } = await getObject({ path: "runs" });
      if (!Array.isArray(runs)) throw new ProtocolError("GET runs: the answer has no list of runs");
      return runs as RunSummary[];
    },
    async run(runId) {
      return (await getObject({ path: runPath(runId) })) as unknown as RunSummary;
    },
    async health({ nonce, timeoutMs } = {}) {
      const path = nonce === undefined ? "health" : `health?nonce=${encodeURIComponent(nonce)}`;
      const health = (await getObject({ path, anonymous: true }, timeoutMs)) as unknown as Health;
      if (nonce === undefined) return health;
      const { bootId, proof = "" } = health;
      if (await verifyHealthProof({ token: await token(), bootId, nonce, proof })) return health;
      throw new ProofError("what answers /health does not know the token");
    },
    async idle() {
      return (await getObject({ path: "idle" })) as unknown as Idle;
    },
    async setConfig(update) {
      await transport.call({ method: "POST", path: "config", body: JSON.stringify(update) }, requestMs);
      if (fixed !== undefined && update.token !== undefined) fixed = update.token;
    },
    async metrics() {
      return (await transport.call({ method: "GET", path: "metrics" }, requestMs)).text;
    },
  };
}

function readPatience(options: Partial<Patience>): Patience {
  const { silenceMs = PATIENCE.silenceMs } = options;
  return {
    silenceMs,
    retryBaseMs: options.retryBaseMs ?? PATIENCE.retryBaseMs,
    retryCapMs: options.retryCapMs ?? PATIENCE.retryCapMs,
    connectForMs: options.connectForMs ?? silenceMs,
    settledForMs: options.settledForMs ?? PATIENCE.settledForMs,
    startRetries: options.startRetries ?? PATIENCE.startRetries,
  };
}

/**
 * The token as it travels: a header drops blanks around it, as a file's last newline, and what it cannot hold would come
 * back in an error that shows it.
 */
function checkToken(token: string): string {
  const trimmed = token.trim();
  if (!/^[\x21-\x7e]*$/.test(trimmed)) throw new TypeError("the token must be printable ASCII without spaces");
  return trimmed;
}

/** As it is now: what is sent again must be what was sent. What cannot be sent is said here, and not as a pod that is lost. */
function copyOf(input: DispatchInput): DispatchInput {
  const text = JSON.stringify(input) as string | undefined;
  if (text === undefined) throw new TypeError("the input is no JSON");
  return JSON.parse(text) as DispatchInput;
}

/** The path of a run. A URL takes `.` and `..` for steps, also when they are escaped. */
function runPath(runId: string): string {
  if (runId === "" || runId === "." || runId === "..") throw new TypeError(`no URL can name the run id "${runId}"`);
  return `runs/${encodeURIComponent(runId)}`;
}
