/**
 * `org/output` and `org/upload`: links to the thread's folders on the volumes `.outputs` and `.uploads`, set anew for
 * each run. Only where the volume is mounted, and only for a thread id that is the name of one folder; where there is
 * no link to make, that of another thread's run is taken away.
 */
import { basename, join } from "node:path";
import type { Log } from "../log/port.ts";
import { isPathSegment } from "./mount-paths.ts";
import type { FlightOptions, FlightResult, OrgFs } from "./port.ts";

const LINKS = [
  { name: "output", volume: ".outputs" },
  { name: "upload", volume: ".uploads" },
] as const;

/** A folder more on a mount takes milliseconds; one that hangs is not waited for. */
const DEADLINE_MS = 2000;

export interface LinkRunOptions {
  readonly orgRoot: string;
  readonly orgFs: OrgFs;
  readonly log: Log;
  readonly mounted: (volume: string) => boolean;
  readonly owner: { readonly uid: number; readonly gid: number } | null;
}

/** Resolves within `DEADLINE_MS` with the links that now lead somewhere. Never rejects. */
export async function linkRun(
  threadId: string,
  { orgRoot, orgFs, log, mounted, owner }: LinkRunOptions,
): Promise<readonly string[]> {
  const wanted = LINKS.filter(({ volume }) => isPathSegment(threadId) && mounted(volume));
  const links = LINKS.map(({ name, volume }) => ({
    path: join(orgRoot, name),
    target: wanted.some((link) => link.name === name) ? `${volume}/${threadId}` : null,
  }));
  const local: FlightOptions = { volume: "org", deadlineMs: DEADLINE_MS, lane: "links" };
  const [set, ...made] = await Promise.all([
    orgFs.fly("links-set", { links }, local),
    ...wanted.map(({ volume }) =>
      orgFs.fly("folder-make", { path: join(orgRoot, volume, threadId), owner }, { volume, deadlineMs: DEADLINE_MS }),
    ),
  ]);
  // By their names: the worker may have reached them by another path.
  const taken = set.type === "done" ? set.output.taken.map((path) => basename(path)) : [];
  if (set.type !== "done" || taken.length > 0) {
    log.warn("run not linked", { reason: taken.length > 0 ? "something else is in the way" : reasonOf(set) });
  }
  return wanted.flatMap(({ name, volume }, index) => {
    const folder = made[index];
    if (folder?.type !== "done") {
      log.warn("run's folder not made", { volume, reason: folder && reasonOf(folder) });
      return [];
    }
    return set.type === "done" && !taken.includes(name) ? [name] : [];
  });
}

function reasonOf(result: FlightResult<unknown>): string {
  return result.type === "failed" ? `${result.code}: ${result.message}` : result.type;
}
