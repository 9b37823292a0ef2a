/** A relay directory with the daemon's side opened on it, and what it was told. */
import { mkdtemp, readdir, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../src/clock/system.ts";
import type { AdvertisedTool, Relay, RelayRequest } from "../../src/tools/port.ts";
import type { IgnoredWhy } from "../../src/tools/relay/ignored-files.ts";
import { openRelay, type RelayOptions } from "../../src/tools/relay/open-relay.ts";
import { recordingLog, type Said } from "./silent.ts";

export const TOOL: AdvertisedTool = {
  name: "connect_account",
  description: "Connects an account of the person.",
  inputSchema: { type: "object", properties: { service: { type: "string" } } },
  readOnly: true,
};

export class RelayBench {
  readonly requests: RelayRequest[] = [];
  readonly withdrawn: string[] = [];
  readonly ignored: IgnoredWhy[] = [];
  readonly said: Said[];
  /** Called with each request. */
  respond: ((request: RelayRequest, relay: Relay) => void) | undefined;
  #relay: Relay | undefined;

  private constructor(
    readonly folder: string,
    said: Said[],
  ) {
    this.said = said;
  }

  static async open(options: Partial<RelayOptions> = {}): Promise<RelayBench> {
    const bench = await RelayBench.prepare();
    await bench.begin(options);
    return bench;
  }

  /** The folders alone, to be filled before the relay is opened. */
  static async prepare(): Promise<RelayBench> {
    return new RelayBench(await mkdtemp(join(tmpdir(), "relay-")), []);
  }

  async begin(options: Partial<RelayOptions> = {}): Promise<void> {
    this.#relay = await openRelay({
      directory: this.directory,
      runId: "run-1",
      tools: [TOOL],
      agentUser: null,
      clock: systemClock,
      log: recordingLog(this.said),
      metrics: { relayFileIgnored: (why) => void this.ignored.push(why) },
      events: {
        onRequest: (request) => {
          this.requests.push(request);
          this.respond?.(request, this.relay);
        },
        onWithdrawn: (name) => void this.withdrawn.push(name),
      },
      ...options,
    });
  }

  get directory(): string {
    return join(this.folder, "relay");
  }

  get relay(): Relay {
    if (!this.#relay) throw new Error("the relay is not open");
    return this.#relay;
  }

  path(file: string): string {
    return join(this.directory, file);
  }

  async files(): Promise<string[]> {
    return (await readdir(this.directory)).filter((name) => name !== "tools.json").sort();
  }

  /** As the shim publishes. */
  async publish(name: string, content: unknown): Promise<void> {
    const temporary = this.path(`.${name}.tmp`);
    await writeFile(temporary, typeof content === "string" ? content : JSON.stringify(content));
    await rename(temporary, this.path(`${name}.req.json`));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#relay?.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** A name of a request, made of one hex digit. */
export function nameOf(digit: string): string {
  return digit.repeat(32);
}

export function requestContent(overrides: object = {}): object {
  return { toolName: TOOL.name, toolCallId: "call-1", args: { service: "x" }, pid: process.pid, ...overrides };
}

/** Waits for what has to become true. The suite's own limit says when it did not. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 5));
}
