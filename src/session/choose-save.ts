/**
 * Which state of a thread a run starts from. Every run lists first. Then, from the newest name down:
 *
 * - the newest unmarked save that is whole; this pod's own session stands for the saves that it covers;
 * - a marked one instead, when no unmarked save of a later run than its parent is whole: marked saves are of runs that
 *   did not know what the store held, and give way to a history that comes back;
 * - what lies above the pick and is not whole, or is hinted at and absent, makes the new run blind: it goes on with what
 *   it has, says so, and marks its saves.
 */
import { compareRuns, compareSaves, isMarked, type RunKey, runKeyOf, type SaveName } from "./save-name.ts";
import type { LastSave } from "./thread-state.ts";

/** How a save turned out when all of its main transcript was read. `no-file`: nobody can have saved anything there. */
export type Verdict = "whole" | "not-whole" | "no-file" | "unreadable";

export interface SaveReader {
  verify(name: SaveName): Promise<Verdict>;
  /** Of a marked save. Undefined when its head cannot be read. */
  parentOf(name: SaveName): Promise<{ readonly parent?: SaveName } | "no-file" | undefined>;
}

export interface Choice {
  /** `local`: this pod's own session; also when it has never been saved. */
  readonly source: "local" | "stored" | "none";
  readonly pick?: LastSave;
  readonly blind: boolean;
  /** Why it is blind; of one that is not, what of the run that is taken is lost, or why what is there is not to be relied on. */
  readonly reason?: string;
  /** Names above the pick that are no whole saves: none of them makes the new run give way. */
  readonly passedOver?: readonly SaveName[];
}

export interface LocalSession {
  /** The save that it went on from. Absent when there was none. */
  readonly last?: LastSave;
  /**
   * Later saves of that save's run hold nothing that this session lacks, or less than it would lose: the run was this
   * pod's, or the session went on since. Otherwise only the save itself is known to be in it.
   */
  readonly coversRun: boolean;
  /** Runs of this pod that it went on from, whether what they saved got anywhere or not: it holds all that they wrote. */
  readonly ownRuns?: readonly RunKey[];
}

/** True when the session of this pod holds what the save does. */
export function isCovered(name: SaveName, local: LocalSession | undefined): boolean {
  if (local?.ownRuns?.includes(runKeyOf(name))) return true;
  if (!local?.last || runKeyOf(name) !== runKeyOf(local.last.name)) return false;
  return local.coversRun || compareSaves(name, local.last.name) <= 0;
}

export async function chooseSave(
  names: readonly SaveName[],
  local: LocalSession | undefined,
  hint: SaveName | undefined,
  reader: SaveReader,
): Promise<Choice> {
  const own = local?.last;
  const newestFirst = [...new Set(own ? [...names, own.name] : names)].sort((a, b) => compareSaves(b, a));
  let readFailed = false;
  const notWhole = new Set<SaveName>();
  const noFiles = new Set<SaveName>();
  const counted = new Set(newestFirst);
  const isOwn = (name: SaveName): boolean => isCovered(name, local);
  const isWhole = async (name: SaveName): Promise<boolean> => {
    if (isOwn(name)) return true;
    const verdict = await reader.verify(name);
    if (verdict === "unreadable") readFailed = true;
    else if (verdict !== "whole") notWhole.add(name);
    if (verdict === "no-file") noFiles.add(name);
    return verdict === "whole";
  };

  let unmarked: SaveName | undefined;
  for (const name of newestFirst.filter((each) => !isMarked(each))) {
    if (!(await isWhole(name))) continue;
    unmarked = name;
    break;
  }
  let pick: LastSave | undefined = unmarked ? { name: unmarked } : undefined;
  for (const name of newestFirst.filter(isMarked)) {
    const facts = isOwn(name) && own ? own : await reader.parentOf(name);
    if (facts === "no-file") noFiles.add(name);
    if (facts === "no-file" || !facts) {
      notWhole.add(name);
      continue;
    }
    if (unmarked && (!facts.parent || compareRuns(unmarked, facts.parent) > 0)) {
      // A history that came back is all there: what gave way to it does not make the next run blind.
      counted.delete(name);
      continue;
    }
    if (!(await isWhole(name))) continue;
    pick = { name, ...(facts.parent ? { parent: facts.parent } : {}) };
    break;
  }

  const takesLocal = pick ? isOwn(pick.name) : local !== undefined;
  const isThere = (name: SaveName): boolean => !noFiles.has(name);
  const reason = whyBlind([...counted].filter(isThere), pick?.name, newestFirst.find(isThere), hint, readFailed);
  const lacks = reason ?? (pick && whyLacking(pick.name, [...notWhole].filter(isThere), hint, isOwn));
  const passedOver = newestFirst.filter((name) => notWhole.has(name) && (!pick || compareRuns(name, pick.name) > 0));
  return {
    source: takesLocal ? "local" : pick ? "stored" : "none",
    ...(takesLocal && own ? { pick: own } : pick ? { pick } : {}),
    blind: reason !== undefined,
    ...(lacks ? { reason: lacks } : {}),
    ...(passedOver.length > 0 ? { passedOver } : {}),
  };
}

/**
 * Of the very run that is taken something later is lost: the end of its last turn. That makes nobody blind, since all that
 * is lost is that run's own, but whoever reads the answer is to see it.
 */
function whyLacking(
  pick: SaveName,
  notWhole: readonly SaveName[],
  hint: SaveName | undefined,
  isOwn: (name: SaveName) => boolean,
): string | undefined {
  const isLater = (name: SaveName): boolean =>
    runKeyOf(name) === runKeyOf(pick) && compareSaves(name, pick) > 0 && !isOwn(name);
  if (notWhole.some(isLater)) return "the end of the thread's last turn is lost: its newest save is not whole";
  if (hint && isLater(hint)) return "the end of the thread's last turn is lost: its newest save is not on the volume";
  return undefined;
}

function whyBlind(
  counted: readonly SaveName[],
  pick: SaveName | undefined,
  newest: SaveName | undefined,
  hint: SaveName | undefined,
  readFailed: boolean,
): string | undefined {
  if (readFailed) return "a save of the thread could not be read";
  if (hint && (!newest || compareRuns(hint, newest) > 0))
    return "the newest save of the thread is not on the volume yet";
  const [above] = counted;
  if (above && (!pick || compareRuns(above, pick) > 0)) return "the newest save of the thread is not whole";
  return undefined;
}
