/** What the daemon counts. Labels are from closed lists, never ids. */
export interface Metrics {
  runStarted(): void;
  /** `outcome`: finished, interrupt, or the code of a failure. */
  runConcluded(outcome: string): void;
  runEnded(seconds: number): void;
  /** From the dispatch to the first byte that the harness printed, and to its first frame. */
  firstByte(seconds: number): void;
  firstFrame(seconds: number): void;
  frames(count: number, bytes: number): void;
  takeover(timedOut: boolean): void;
  readerLost(why: string): void;
  strayKilled(count: number): void;
  processLeft(count: number): void;
  lineSkipped(): void;
  /** A file in a run's relay directory that is none of the protocol. */
  relayFileIgnored(why: string): void;
  /** What became of a call of the run's own tools. */
  toolCall(result: ToolCallResult): void;
  refused(code: string): void;
  /** A flight to the org volume, by its job and how it ended. */
  orgFlight(job: string, result: string, seconds: number): void;
  /** A change in what is known of a volume: its breaker, and how many workers are lost at it. */
  orgVolume(volume: string, breaker: "closed" | "open" | "probing", stuck: number): void;
  /** What a run waited for the org volume, and what came of it. */
  orgWaited(home: string, skills: string, seconds: number): void;
  /** What a session took on its way to or from the org volume. */
  sessionMoved(way: "saved" | "restored", bytes: number): void;
  /** How runs found their sessions, by its state in the first frame. */
  sessionFound(state: string): void;
  /** Prometheus text of everything, gauges read at this moment. */
  render(): Promise<{ contentType: string; text: string }>;
}

/** `made_up`: a request that is no call of the harness. `held` and `parked` are asked of a person. */
export type ToolCallResult = "answered" | "failed" | "denied" | "held" | "parked" | "made_up";

/** Read when the metrics are asked for. */
export interface Gauges {
  readonly runs: () => number;
  readonly readers: () => number;
  readonly draining: () => boolean;
}
