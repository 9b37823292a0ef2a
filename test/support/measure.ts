/** What a daemon takes: its memory as the kernel counts it, and whether /health answers meanwhile. */
import { readFile } from "node:fs/promises";
import type { TestDaemon } from "./daemon.ts";

export const residentKib = (pid: number): Promise<number> => statusKib(pid, "VmRSS");
/** The most that was ever resident. */
export const highWaterKib = (pid: number): Promise<number> => statusKib(pid, "VmHWM");

async function statusKib(pid: number, field: string): Promise<number> {
  const text = await readFile(`/proc/${pid}/status`, "utf8");
  const value = new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(text)?.[1];
  if (value === undefined) throw new Error(`no ${field} of process ${pid}`);
  return Number(value);
}

export interface HealthWatch {
  /** Resolves with how often it was answered. */
  stop(): Promise<number>;
}

/** Asks for /health again and again until it is stopped. */
export function watchHealth(daemon: TestDaemon): HealthWatch {
  let stopped = false;
  let answers = 0;
  const watch = (async () => {
    while (!stopped) {
      const { status } = await fetch(`${daemon.url}/health`);
      if (status !== 200) throw new Error(`/health answered ${status}`);
      answers++;
      await Bun.sleep(10);
    }
  })();
  return {
    async stop() {
      stopped = true;
      await watch;
      return answers;
    },
  };
}
