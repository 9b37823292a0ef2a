/** A pod for tests: folders of its own, a harness that keeps files, and flights that call the jobs in this process. */
import { appendFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Clock } from "../../src/clock/port.ts";
import { systemClock } from "../../src/clock/system.ts";
import { loadConfig } from "../../src/config.ts";
import { errnoOf, messageOf } from "../../src/errors.ts";
import type { Harness } from "../../src/harness/port.ts";
import type { Log } from "../../src/log/port.ts";
import type { FlightResult, OrgFs } from "../../src/orgfs/port.ts";
import { createPointers } from "../../src/session/pointer.ts";
import type { SessionInput, SessionRun } from "../../src/session/port.ts";
import { runRestoreJob } from "../../src/session/restore-job.ts";
import { runSaveJob } from "../../src/session/save-job.ts";
import { createSessions } from "../../src/session/sessions.ts";
import { silentMetrics } from "../support/silent.ts";

export const FILES = { main: "projects/*/<id>.jsonl", side: "projects/*/<id>" };

export interface LoggedLine {
  readonly event: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

export function memoryLog(lines: LoggedLine[]): Log {
  const add = (event: string, fields = {}): void => void lines.push({ event, fields });
  const log: Log = { debug: add, info: add, warn: add, error: add, child: () => log };
  return log;
}

export class Volume {
  private constructor(readonly home: string) {}
  static async create(): Promise<Volume> {
    return new Volume(await mkdtemp(join(tmpdir(), "dispatchd-home-")));
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.home, { recursive: true, force: true });
  }
}

export interface PodOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
  /** Real flights, in the place of calls in this process. */
  readonly orgFs?: OrgFs;
}

/** Jobs by name; a test may put its own in their place. */
type Jobs = Record<string, (input: never) => Promise<unknown>>;

export class DiskPod {
  readonly lines: LoggedLine[] = [];
  readonly configDir: string;
  readonly harness: Harness;
  readonly jobs: Jobs = { "session-restore": runRestoreJob, "session-save": runSaveJob };
  readonly flights: string[] = [];
  mounted = true;
  readonly sessions;

  private constructor(
    readonly folder: string,
    readonly volume: { readonly home: string } | null,
    options: PodOptions,
  ) {
    this.configDir = join(folder, "config");
    const capabilities = { resume: true, clientTools: "none", sessionFiles: FILES } as const;
    this.harness = { id: "h", argv: ["true"], capabilities, configDir: this.configDir, settings: {} };
    const sources = { version: "0", cwd: folder, readSecretFile: () => "", randomId: () => "random" };
    const config = loadConfig({ ...sources, env: { DAEMON_TOKEN: "t", ...options.env } });
    this.sessions = createSessions({
      clock: options.clock ?? systemClock,
      log: memoryLog(this.lines),
      metrics: silentMetrics(),
      pointers: createPointers(join(folder, "threads")),
      folder: join(folder, "threads"),
      config,
      org: volume && {
        orgFs: options.orgFs ?? this.#orgFs(),
        volume: "home",
        mountPath: volume.home,
        mounted: () => this.mounted,
      },
    });
  }

  static async create(volume: { readonly home: string } | null, options: PodOptions = {}): Promise<DiskPod> {
    const folder = await mkdtemp(join(tmpdir(), "dispatchd-pod-"));
    await mkdir(join(folder, "threads"));
    return new DiskPod(folder, volume, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }

  begin(threadId: string, input: SessionInput = {}): Promise<SessionRun> {
    return this.sessions.begin({ threadId, runId: "r", harness: this.harness, input }, new AbortController().signal);
  }

  /** As a harness that says its session and writes to its transcript. */
  async say(run: SessionRun, sessionId: string, text: string): Promise<void> {
    run.noteSession(sessionId);
    await this.append(`projects/p/${sessionId}.jsonl`, text);
    await run.pointerWritten();
  }

  async append(path: string, text: string | Uint8Array): Promise<void> {
    await mkdir(dirname(join(this.configDir, path)), { recursive: true });
    await appendFile(join(this.configDir, path), text);
  }

  async write(path: string, text: string): Promise<void> {
    await mkdir(dirname(join(this.configDir, path)), { recursive: true });
    await writeFile(join(this.configDir, path), text);
  }

  read(path: string): Promise<string> {
    return readFile(join(this.configDir, path), "utf8");
  }

  /** One whole turn: begins, says, saves. */
  async turn(threadId: string, text: string, input: SessionInput = {}, sessionId = "s1") {
    const run = await this.begin(threadId, input);
    await this.say(run, run.found.id ?? sessionId, text);
    return { found: run.found, settled: await run.save({ deadlineMs: 5000 }) };
  }

  #orgFs(): OrgFs {
    const fly = async (job: string, input: unknown): Promise<FlightResult<unknown>> => {
      this.flights.push(job);
      try {
        // As over the pipe: what is no JSON does not come through.
        const asked = JSON.parse(JSON.stringify(input)) as never;
        const output = await this.jobs[job]?.(asked);
        return { type: "done", output: JSON.parse(JSON.stringify(output)), elapsedMs: 0 };
      } catch (error) {
        if (error instanceof Overdue) return { type: "overdue", afterMs: 1 };
        return { type: "failed", code: errnoOf(error) ?? "internal", message: messageOf(error) };
      }
    };
    return { fly: fly as OrgFs["fly"], isStuck: () => false, state: () => ({}), stop() {} };
  }
}

/** Thrown by a job in a test: the flight never came back. */
export class Overdue extends Error {}
