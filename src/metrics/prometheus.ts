/** The metrics as Prometheus serves them. Loaded behind `import()`, after the daemon listens. */
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { Clock } from "../clock/port.ts";
import type { Gauges, Metrics } from "./port.ts";

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800];
const LAG_TICK_MS = 500;

export function createPrometheusMetrics(clock: Clock, version: string, gauges: Gauges): Metrics & { stop(): void } {
  const registry = new Registry();
  const registers = [registry];
  const counter = <L extends string>(name: string, help: string, labelNames: readonly L[] = []): Counter<L> =>
    new Counter({ name: `dispatchd_${name}`, help, labelNames: [...labelNames], registers });
  const histogram = <L extends string>(name: string, help: string, labelNames: readonly L[] = []): Histogram<L> =>
    new Histogram({ name: `dispatchd_${name}`, help, labelNames: [...labelNames], buckets: SECONDS, registers });
  /** Read when the metrics are asked for, or set when it changes. */
  const gauge = <L extends string>(name: string, help: string, source: (() => number) | readonly L[]): Gauge<L> =>
    new Gauge<L>({
      name: `dispatchd_${name}`,
      help,
      registers,
      ...(typeof source === "function"
        ? {
            collect() {
              this.set(source());
            },
          }
        : { labelNames: [...source] }),
    });

  const started = counter("runs_started_total", "Attempts that were started");
  const concluded = counter("runs_total", "Runs by their outcome", ["outcome"]);
  const duration = histogram("run_seconds", "From the dispatch to the last frame");
  const firstByte = histogram("first_byte_seconds", "From the dispatch to the harness's first byte");
  const firstFrame = histogram("first_frame_seconds", "From the dispatch to the harness's first frame");
  const frames = counter("frames_total", "Frames of harnesses");
  const frameBytes = counter("frame_bytes_total", "Bytes of the frames of harnesses");
  const takeovers = counter("takeovers_total", "Runs that another dispatch took over", ["waited"]);
  const lost = counter("readers_lost_total", "Readers that were lost, by how", ["why"]);
  const strays = counter("strays_killed_total", "Processes outside their run's group that were killed");
  const left = counter("processes_left_total", "Processes that did not end in spite of SIGKILL");
  const skipped = counter("lines_skipped_total", "Lines of harnesses that were no frames");
  const relayFilesIgnored = counter("relay_files_ignored_total", "Files in relay directories that were not believed", [
    "why",
  ]);
  const toolCalls = counter("tool_calls_total", "Calls of the runs' own tools, by what became of them", ["result"]);
  const refused = counter("refused_total", "Requests that were refused, by code", ["code"]);
  const orgFlights = counter("org_flights_total", "Flights to the org volume, by how they ended", ["job", "result"]);
  const orgSeconds = histogram("org_flight_seconds", "What flights to the org volume took", ["job"]);
  const orgStuck = gauge("org_workers_stuck", "Workers that hang at a volume and cannot be killed", ["volume"]);
  const orgBreaker = gauge("org_breaker_open", "1 while flights to the volume are refused", ["volume"]);
  const orgWaits = counter("org_waits_total", "Runs by what they got of the org volume", ["home", "skills"]);
  const orgWaitSeconds = histogram("org_wait_seconds", "What runs waited for the org volume");
  const sessionBytes = counter("session_bytes_total", "Bytes written to and restored from the org volume", ["way"]);
  const sessionsFound = counter("sessions_found_total", "Runs by what they went on from", ["state"]);
  gauge("runs", "Runs without an outcome", gauges.runs);
  gauge("readers", "Readers attached", gauges.readers);
  gauge("draining", "1 while the daemon shuts down", () => (gauges.draining() ? 1 : 0));
  gauge("resident_bytes", "Resident memory of the daemon", () => process.memoryUsage.rss());
  new Gauge({ name: "dispatchd_info", help: "The version, as a label", labelNames: ["version"], registers })
    .labels(version)
    .set(1);
  const lag = histogram("event_loop_lag_seconds", "How late a timer of the daemon fired");
  let due = clock.monotonic() + LAG_TICK_MS;
  const stopLag = clock.every(LAG_TICK_MS, () => {
    const now = clock.monotonic();
    lag.observe(Math.max(0, now - due) / 1000);
    due = now + LAG_TICK_MS;
  });

  return {
    runStarted: () => started.inc(),
    runConcluded: (outcome) => concluded.inc({ outcome }),
    runEnded: (seconds) => duration.observe(seconds),
    firstByte: (seconds) => firstByte.observe(seconds),
    firstFrame: (seconds) => firstFrame.observe(seconds),
    frames(count, bytes) {
      frames.inc(count);
      frameBytes.inc(bytes);
    },
    takeover: (timedOut) => takeovers.inc({ waited: timedOut ? "timeout" : "ok" }),
    readerLost: (why) => lost.inc({ why }),
    strayKilled: (count) => strays.inc(count),
    processLeft: (count) => left.inc(count),
    lineSkipped: () => skipped.inc(),
    relayFileIgnored: (why) => relayFilesIgnored.inc({ why }),
    toolCall: (result) => toolCalls.inc({ result }),
    refused: (code) => refused.inc({ code }),
    orgFlight(job, result, seconds) {
      orgFlights.inc({ job, result });
      orgSeconds.observe({ job }, seconds);
    },
    orgVolume(volume, breaker, stuck) {
      orgStuck.set({ volume }, stuck);
      orgBreaker.set({ volume }, breaker === "closed" ? 0 : 1);
    },
    orgWaited(home, skills, seconds) {
      orgWaits.inc({ home, skills });
      orgWaitSeconds.observe(seconds);
    },
    sessionMoved: (way, bytes) => sessionBytes.inc({ way }, bytes),
    sessionFound: (state) => sessionsFound.inc({ state }),
    render: async () => ({ contentType: registry.contentType, text: await registry.metrics() }),
    stop: stopLag,
  };
}
