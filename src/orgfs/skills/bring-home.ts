/**
 * Job: the org's own skills, from the volume to the pod. Each is put in place on its own, as a whole, as soon as it is
 * read, so that a volume which hangs half-way costs the rest alone. Of each, three versions are compared: the volume's,
 * the pod's, and the one that both had last:
 *
 *     the volume's as last           nothing is read; a copy that is gone is read again
 *     the volume's changed           it replaces the pod's, if that is as last
 *     both changed                   the pod's goes on under another name, and the volume's takes its place; so does what
 *                                    the pod had written there, when another overwrote it unseen
 *     the volume's is gone           the pod's goes too, if it is as last and the volume once kept it
 *
 * A copy whose hashes differ from what its file of hashes says is not taken. One that stays so was written by two pods at
 * once, on a mount with old listings, and nobody can read it: what this pod had written there goes on under another name.
 */
import { join } from "node:path";
import { errnoOf } from "../../errors.ts";
import { eachAtATime } from "./each-at-a-time.ts";
import { versionOf } from "./hash-file.ts";
import type { BroughtHome, Conflict, HomeInput, LeftOut } from "./jobs.ts";
import { isSkillName, MAX_VOLUME_BYTES, MAX_VOLUME_SKILLS, ODD_NAME, READS_AT_A_TIME, tellableName } from "./limits.ts";
import { linkSkills } from "./link-skills.ts";
import { layOutPodFolders, newFolder } from "./pod-folders.ts";
import { nameAside, podHome } from "./pod-home.ts";
import { recordsIn, type SkillRecord, type Suspicion } from "./records.ts";
import { suspectsIn } from "./suspects.ts";
import { diskFiles, limitCalls, type VolumeFiles, VolumeHangs } from "./volume-files.ts";
import { listOddSkills, listSkill, readSkill, type SkillContent, SkillTrouble } from "./volume-skill.ts";
import { writeCopy } from "./write-copy.ts";

/** Late files have come by then. */
const GIVEN_UP_AFTER_MS = 60_000;
/** A skill that this pod wrote counts as kept by the volume when its listing shows it this long after. */
const PROVED_AFTER_MS = 60_000;

export async function bringHome(input: HomeInput, files: VolumeFiles = diskFiles): Promise<BroughtHome> {
  const folders = layOutPodFolders(input.stateDir, input.volume, input.agent);
  const link = await linkSkills(input.configDir, folders.home, input.agent);
  const volume = limitCalls(files, input.callMs);
  const home = podHome(folders, input.agent);
  const records = recordsIn<SkillRecord>(folders.records);
  const suspects = suspectsIn(recordsIn<Suspicion>(folders.suspects), input.volume, input.nowMs);
  const root = join(input.mountPath, "skills");
  const changed: string[] = [];
  const conflicts: Conflict[] = [];
  const removed: string[] = [];
  const leftOut: LeftOut[] = [];
  let hung = false;
  let bytes = 0;

  const leaveOut = (name: string, reason: string): void =>
    void leftOut.push({ name, reason, kept: home.look(name) !== undefined });

  async function bring(name: string): Promise<void> {
    const dir = join(root, name);
    const listing = await listSkill(volume, dir);
    if (!listing) return;
    // Only what fits counts: a large one holds up none behind it.
    if (bytes + listing.bytes > MAX_VOLUME_BYTES) {
      throw new SkillTrouble(`the volume's skills are over ${MAX_VOLUME_BYTES} bytes`, false);
    }
    bytes += listing.bytes;
    const record = records.read(name);
    const found = home.look(name);
    // What lies there is half of what this pod was writing: its return goes on, and compares.
    if (record?.writing && found) return;
    if (record?.remote === listing.signature && found) {
      if (record.returnedAtMs !== undefined && input.nowMs - record.returnedAtMs > PROVED_AFTER_MS) {
        const { returnedAtMs: _proved, ...rest } = record;
        records.write(name, rest);
      }
      return;
    }
    if (record?.refused?.remote === listing.signature) {
      rescue(name, record);
      throw new SkillTrouble(record.refused.reason, true);
    }
    const staged = newFolder(folders.staging);
    try {
      const content = await readSkill(volume, dir, listing, (path, bytes) => writeCopy(staged, path, bytes));
      settle(name, { ...content, staged, version: versionOf(content.files), remote: listing.signature });
    } catch (error) {
      if (error instanceof SkillTrouble && error.lasting) {
        const base: SkillRecord = record ?? { name, base: null, files: {}, remote: "" };
        const refused = { remote: listing.signature, reason: error.reason, sinceMs: input.nowMs };
        records.write(name, { ...base, refused });
      }
      throw error;
    }
  }

  /** The volume's version is read: which one does the pod have from now on? */
  function settle(name: string, read: SkillContent & { staged: string; version: string; remote: string }): void {
    const record = records.read(name);
    const found = home.look(name);
    const version = found && home.versionOf(name, found, record);
    if (found && version !== read.version) {
      if (version === undefined) throw new SkillTrouble(found.trouble ?? "the pod's copy cannot be read", false);
      if (version !== record?.base || isOverwritten(record, read)) keepAside(name);
    }
    if (version !== read.version) {
      home.put(name, read.staged);
      changed.push(name);
    }
    const local = home.look(name)?.signature;
    const { version: base, files, remote, ancestors } = read;
    const stillMine = record?.base === base ? record : undefined;
    records.write(name, {
      ...{ name, base, files, remote },
      ...(ancestors ? { ancestors } : {}),
      ...(local === undefined ? {} : { local }),
      ...(stillMine?.mine ? { mine: true } : {}),
      ...(stillMine?.returnedAtMs === undefined ? {} : { returnedAtMs: stillMine.returnedAtMs }),
    });
  }

  /** What this pod wrote can be read nowhere but here. */
  function rescue(name: string, record: SkillRecord): void {
    const { mine, ...rest } = record;
    if (!mine || !record.refused || input.nowMs - record.refused.sinceMs <= GIVEN_UP_AFTER_MS) return;
    const found = home.look(name);
    // What the agent made of it meanwhile is put beside it by its return.
    if (!found || home.versionOf(name, found, record) !== record.base) return;
    keepAside(name);
    records.write(name, rest);
  }

  function keepAside(name: string): void {
    const snapshot = home.snapshot(name);
    if (!snapshot) throw new SkillTrouble("the pod's copy changed too and cannot be read", false);
    const keptAs = nameAside(name, snapshot.version);
    if (!home.look(keptAs)) home.put(keptAs, snapshot.dir);
    conflicts.push({ name, keptAs });
  }

  /** What the volume has no more. A folder that is missing altogether says nothing. */
  function prune(listed: ReadonlySet<string>): void {
    for (const [name, found] of home.skills()) {
      const record = records.read(name);
      if (!record || record.writing || listed.has(name)) continue;
      records.remove(name);
      // The agent's own work goes back to the volume instead, and so does what the volume lost.
      if (record.returnedAtMs !== undefined || home.versionOf(name, found, record) !== record.base) continue;
      home.remove(name);
      removed.push(name);
    }
  }

  try {
    const names = await volume.list(root);
    const skills = (names ?? []).filter(isSkillName).sort();
    for (const name of skills.splice(MAX_VOLUME_SKILLS))
      leaveOut(name, `the volume has over ${MAX_VOLUME_SKILLS} skills`);
    const { tried, spared } = suspects.order(skills);
    for (const name of spared) leaveOut(name, "reading it took too long before");
    await eachAtATime(READS_AT_A_TIME, tried, async (name) => {
      try {
        if (hung) throw new VolumeHangs(false);
        await suspects.watch(name, () => bring(name));
      } catch (error) {
        if (error instanceof VolumeHangs) hung = true;
        leaveOut(name, reasonOf(error));
      }
    });
    if (names) prune(new Set(names));
    const odd = hung ? [] : await listOddSkills(volume, root, names ?? [], suspects);
    for (const name of odd) leftOut.push({ name: tellableName(name), reason: ODD_NAME, kept: false });
  } catch (error) {
    if (!(error instanceof VolumeHangs)) throw error;
    hung = true;
  }
  return { hung, leftOut, count: home.skills().size, changed, removed, conflicts, link };
}

function reasonOf(error: unknown): string {
  if (error instanceof SkillTrouble) return error.reason;
  if (error instanceof VolumeHangs) return "the volume does not answer";
  const code = errnoOf(error);
  if (code === undefined) throw error;
  // The pod's own disk, or the agent, that is at its copies at the same time.
  return `it cannot be put in place: ${code}`;
}

/** Did a pod that had not seen this one's version put its own in the place? */
function isOverwritten(record: SkillRecord, { ancestors }: SkillContent): boolean {
  return record.mine === true && record.base !== null && ancestors?.includes(record.base) === false;
}
