/**
 * Which calls of the run's tools the harness has announced, and which requests in the relay directory are these calls.
 *
 * A request is believed when id, name and arguments are those of a call that the harness announced and that nobody has
 * answered. The announcement travels on stdout and the request through a file, so either may come first: a request waits
 * a little. Everything else was made up by a process of the agent's user.
 */
import { sameJson } from "../canonical-json.ts";
import type { Clock } from "../clock/port.ts";
import type { RelayRequest, ToolSpec } from "./port.ts";

/** The announcement is at most some milliseconds behind; a machine that is overloaded takes longer. */
const ANNOUNCEMENT_MS = 2000;

export type CallState =
  /** Known from the harness, not asked for yet. */
  | "announced"
  /** It is being decided on, or carried out. */
  | "working"
  /** Open until a person answers, or the limit. */
  | "held"
  /** A person has to answer it, in a later run. */
  | "parked"
  | "answered"
  /** Nobody waits for its result any more. */
  | "withdrawn";

export interface Call {
  readonly toolCallId: string;
  readonly spec: ToolSpec;
  /** Undefined once it has its result: a run may make calls without end. */
  input: unknown;
  /** The call whose subagent makes this one. */
  readonly parentToolCallId?: string;
  state: CallState;
  /** A callback was asked to carry it out: it is not asked again, whoever makes the call once more. */
  begun?: true;
  /** Names of the requests that wait for it: more than one when somebody copied one. */
  readonly requests: Set<string>;
}

export interface CallEvents {
  /** The first request of an announced call. */
  readonly onCalled: (call: Call) => void;
  /** A request that is none of ours, and what is wrong with it. */
  readonly onMadeUp: (request: RelayRequest, reason: string) => void;
}

export class AnnouncedCalls {
  readonly #calls = new Map<string, Call>();
  /** Requests whose call was not announced yet. */
  readonly #early = new Map<string, { readonly request: RelayRequest; readonly cancel: () => void }>();

  constructor(
    private readonly clock: Clock,
    private readonly events: CallEvents,
  ) {}

  get ids(): Iterable<string> {
    return this.#calls.keys();
  }

  get(toolCallId: string): Call | undefined {
    return this.#calls.get(toolCallId);
  }

  /** The same id again changes nothing: what was announced first is what is believed. */
  announce(call: Omit<Call, "state" | "requests">): void {
    if (this.#calls.has(call.toolCallId)) return;
    this.#calls.set(call.toolCallId, { ...call, state: "announced", requests: new Set() });
  }

  /** A call of an earlier run: no request can be for it. */
  addAnswered(call: Omit<Call, "state" | "requests">): void {
    this.#calls.set(call.toolCallId, { ...call, input: undefined, state: "answered", requests: new Set() });
  }

  /** To be called when announcements have reached the reader: an output must not come before its call. */
  matchEarly(): void {
    for (const [name, { request, cancel }] of this.#early) {
      if (!this.#calls.has(request.toolCallId)) continue;
      cancel();
      this.#early.delete(name);
      this.#match(request);
    }
  }

  request(request: RelayRequest): void {
    if (this.#calls.has(request.toolCallId)) {
      this.#match(request);
      return;
    }
    const cancel = this.clock.after(ANNOUNCEMENT_MS, () => {
      this.#early.delete(request.name);
      this.events.onMadeUp(request, "no such call was announced");
    });
    this.#early.set(request.name, { request, cancel });
  }

  /** The call that nobody waits for any more, if this was its last request. */
  withdraw(name: string): Call | undefined {
    this.#early.get(name)?.cancel();
    this.#early.delete(name);
    for (const call of this.#calls.values()) {
      if (call.requests.delete(name)) return call.requests.size === 0 ? call : undefined;
    }
    return undefined;
  }

  stop(): void {
    for (const { cancel } of this.#early.values()) cancel();
    this.#early.clear();
  }

  #match(request: RelayRequest): void {
    const call = this.#calls.get(request.toolCallId);
    if (call?.state === "answered" || call?.state === "parked") {
      this.events.onMadeUp(request, "the call has its result already");
      return;
    }
    if (call?.spec.name !== request.toolName || !sameJson(call.input, request.args)) {
      this.events.onMadeUp(request, "the call was announced with another name or other arguments");
      return;
    }
    if (call.state === "withdrawn" && call.begun) {
      this.events.onMadeUp(request, "it was called off, and may have been carried out all the same");
      return;
    }
    call.requests.add(request.name);
    if (call.state !== "announced" && call.state !== "withdrawn") return;
    call.state = "working";
    this.events.onCalled(call);
  }
}
