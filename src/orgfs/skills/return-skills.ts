/**
 * Job: what the agent wrote or changed among the org's own skills, from the pod to the volume; before it, skills that it
 * left in its checkout are adopted. A skill's files are written at their final names, `SKILL.md` after the others and the
 * file of hashes last: whoever reads before that finds hashes that differ, or no skill. Where there is no such file yet,
 * one goes before the others too. What the agent deleted stays.
 *
 * A skill that changed on the volume as well is not overwritten: the pod's version is put beside it under another name. So
 * that two pods cannot both find it unchanged, each claims it before it compares, until it has written.
 * Told apart from that is what a lost flight of this pod left half-written: it is gone on with.
 */
import { join } from "node:path";
import { errnoOf } from "../../errors.ts";
import { adoptStrays } from "./adopt-strays.ts";
import type { PodSkill } from "./agent-tree.ts";
import { claimsOn } from "./claims.ts";
import { type FileSums, formatHashFile, HASH_FILE, sumOf } from "./hash-file.ts";
import type { Conflict, LeftOut, ReturnedSkills, ReturnInput } from "./jobs.ts";
import { MAX_SKILL_BYTES, MAX_VOLUME_BYTES, ODD_NAME, SKILL_FILE, tellableName } from "./limits.ts";
import { layOutPodFolders, podNameIn } from "./pod-folders.ts";
import { nameAside, podHome, type Snapshot } from "./pod-home.ts";
import { readCopy } from "./read-copy.ts";
import { recordsIn, type SkillRecord } from "./records.ts";
import { diskFiles, limitCalls, type VolumeFile, type VolumeFiles, VolumeHangs } from "./volume-files.ts";
import { listSkill, readSkill, type SkillListing, SkillTrouble } from "./volume-skill.ts";

export async function returnSkills(input: ReturnInput, files: VolumeFiles = diskFiles): Promise<ReturnedSkills> {
  const folders = layOutPodFolders(input.stateDir, input.volume, input.agent);
  const home = podHome(folders, input.agent);
  const records = recordsIn<SkillRecord>(folders.records);
  const volume = limitCalls(files, input.callMs);
  const root = join(input.mountPath, "skills");
  const claims = claimsOn(volume, root, podNameIn(folders), input.patienceMs);
  const adoption = adoptStrays(input, folders, home);
  const returned: string[] = [];
  const conflicts: Conflict[] = [...adoption.conflicts];
  const leftOut: LeftOut[] = [];
  let hung = false;

  async function give(name: string, found: PodSkill): Promise<void> {
    const record = records.read(name);
    // One that is half-written on the volume is put right, also when the agent has undone its change.
    if (record && !record.writing && home.versionOf(name, found, record) === record.base) {
      // Touched, and as it was: not to be read again at every checkpoint.
      if (record.local !== found.signature) records.write(name, { ...record, local: found.signature });
      return;
    }
    if (input.quietMs > 0 && input.nowMs - found.changedMs < input.quietMs) return;
    const snapshot = home.snapshot(name);
    if (!snapshot) throw new SkillTrouble("it changes while it is read", false);
    await lookAtRoot();
    const isDone = await claims.during(name, async () => {
      const there = await compare(name, snapshot, record);
      if (there.type === "same") return agree(name, snapshot, there.listing.signature, record);
      if (there.type === "free") return write(name, snapshot, record, there);
      await giveAside(name, snapshot);
    });
    // Another pod writes it for longer than can be waited. While the run goes on, there is a next time.
    if (!isDone && input.quietMs === 0) await giveAside(name, snapshot);
  }

  /** Through a link, all would be written elsewhere. */
  async function lookAtRoot(): Promise<void> {
    if ((await volume.look(root)) === "other") throw new SkillTrouble("the volume's folder of skills is a link", false);
  }

  type Place =
    /** Nothing there would be lost; `have` is what need not be written again. */
    | { readonly type: "free"; readonly listing: SkillListing | undefined; readonly have: FileSums }
    | { readonly type: "same"; readonly listing: SkillListing }
    | { readonly type: "taken" };

  /** What lies on the volume under this name, seen from the version that is to be written. */
  async function compare(name: string, snapshot: Snapshot, record: SkillRecord | undefined): Promise<Place> {
    const dir = join(root, name);
    const listing = await listSkill(volume, dir).catch((error: unknown) => {
      // It stays as it is, so the pod's goes beside it.
      if (error instanceof SkillTrouble && error.lasting) return "no skill" as const;
      throw error;
    });
    if (listing === "no skill" || !hasRoom(listing, snapshot.files)) return { type: "taken" };
    if (!listing) return { type: "free", listing, have: {} };
    if (record && !record.writing && listing.signature === record.remote) {
      return { type: "free", listing, have: record.files };
    }
    const there = await sumsOnVolume(dir, listing);
    if (there && isWithin(snapshot.files, there)) return { type: "same", listing };
    // Unchanged but for its times: a mount shows others once a file has reached its backend.
    if (there && record?.base != null && losesNothing(there, record.files, snapshot.files)) {
      return { type: "free", listing, have: there };
    }
    if (record?.writing && (await isOurs(dir, listing, snapshot, record.writing))) {
      return { type: "free", listing, have: {} };
    }
    return { type: "taken" };
  }

  /** Undefined: it does not agree with its file of hashes. */
  async function sumsOnVolume(dir: string, listing: SkillListing): Promise<FileSums | undefined> {
    try {
      return (await readSkill(volume, dir, listing, () => {})).files;
    } catch (error) {
      if (error instanceof SkillTrouble && error.lasting) return undefined;
      throw error;
    }
  }

  /** Is each file as it was before, or a part of what this pod was writing? */
  async function isOurs(
    dir: string,
    listing: SkillListing,
    snapshot: Snapshot,
    { files: wanted, hashes, before }: NonNullable<SkillRecord["writing"]>,
  ): Promise<boolean> {
    for (const [path, file] of listing.files) {
      if (isSameFile(before[path], file)) continue;
      const bytes = await volume.read(join(dir, path), MAX_SKILL_BYTES);
      if (path === HASH_FILE) {
        if (!hashes.some((text) => isPrefix(bytes, Buffer.from(text)))) return false;
      } else if (sumOf(bytes).sha256 !== wanted[path]?.sha256) {
        const whole = snapshot.files[path]?.sha256 === wanted[path]?.sha256 ? readCopy(snapshot.dir, path) : undefined;
        if (bytes.length > 0 && !(whole && isPrefix(bytes, whole))) return false;
      }
    }
    return true;
  }

  async function write(
    name: string,
    snapshot: Snapshot,
    record: SkillRecord | undefined,
    { listing, have }: Extract<Place, { type: "free" }>,
  ): Promise<void> {
    const before = record?.writing?.before ?? Object.fromEntries(listing?.files ?? []);
    const base: SkillRecord = record ?? { name, base: null, files: {}, remote: "" };
    // Said before the first byte, so that what a lost flight leaves is known for ours.
    const ancestors = record?.base == null ? [] : [record.base, ...(record.ancestors ?? [])];
    const last = formatHashFile({ files: snapshot.files, ancestors });
    const isNew = Object.keys(have).length === 0;
    const first = isNew ? last : formatHashFile({ files: have, ancestors: record?.ancestors ?? [] });
    const hashes = [...new Set([first, last].map(String).concat(record?.writing?.hashes ?? []))];
    records.write(name, { ...base, writing: { files: snapshot.files, hashes, before } });
    const dir = join(root, name);
    const made = new Set<string>([dir]);
    await volume.makeFolder(dir);
    // Nothing would tell a reader that it finds half of a change: it agrees with what is there, until that changes.
    if (!listing?.files.has(HASH_FILE)) await volume.write(join(dir, HASH_FILE), first);
    for (const path of [...Object.keys(snapshot.files)].sort(skillFileLast)) {
      if (have[path]?.sha256 === snapshot.files[path]?.sha256 && listing?.files.has(path)) continue;
      const folder = join(dir, path, "..");
      if (!made.has(folder)) await volume.makeFolder(folder);
      made.add(folder);
      await volume.write(join(dir, path), readCopy(snapshot.dir, path));
    }
    await volume.write(join(dir, HASH_FILE), last);
    const after = await listSkill(volume, dir);
    const { files, version } = snapshot;
    const remote = after?.signature ?? "";
    records.write(name, { name, base: version, files, ancestors, mine: true, remote, returnedAtMs: input.nowMs });
    returned.push(name);
  }

  /** The volume has this version already, from somebody else, or from a flight that was lost after its last write. */
  function agree(name: string, { files, version }: Snapshot, remote: string, record: SkillRecord | undefined): void {
    const mine = record?.writing ? ({ mine: true, returnedAtMs: input.nowMs } as const) : {};
    records.write(name, { name, base: version, files, remote, ...mine });
  }

  async function giveAside(name: string, snapshot: Snapshot): Promise<void> {
    const keptAs = nameAside(name, snapshot.version);
    const place = await compare(keptAs, snapshot, records.read(keptAs));
    if (place.type === "taken") throw new SkillTrouble(`it changed on both sides, and ${keptAs} is taken`, false);
    if (place.type === "free") await write(keptAs, snapshot, records.read(keptAs), place);
    else agree(keptAs, snapshot, place.listing.signature, records.read(keptAs));
    if (!home.look(keptAs)) home.put(keptAs, snapshot.dir);
    // The pod's version is safe under its new name: the next run takes the volume's.
    records.write(name, { name, base: snapshot.version, files: snapshot.files, remote: "" });
    conflicts.push({ name, keptAs });
  }

  let bytes = 0;
  for (const [name, found] of home.skills()) {
    try {
      // Only what is taken counts: one that is too large holds up none behind it.
      if (found.trouble !== undefined) throw new SkillTrouble(found.trouble, false);
      if (bytes + found.bytes > MAX_VOLUME_BYTES) {
        throw new SkillTrouble(`all skills are over ${MAX_VOLUME_BYTES} bytes`, false);
      }
      bytes += found.bytes;
      await give(name, found);
    } catch (error) {
      if (error instanceof VolumeHangs) hung = true;
      leftOut.push({ name, reason: reasonOf(error), kept: true });
      if (hung) break;
    }
  }
  for (const name of home.oddNames()) leftOut.push({ name: tellableName(name), reason: ODD_NAME, kept: true });
  return { hung, returned, adopted: adoption.adopted, conflicts, leftOut: [...adoption.leftOut, ...leftOut] };
}

function reasonOf(error: unknown): string {
  if (error instanceof SkillTrouble) return error.reason;
  if (error instanceof VolumeHangs) return "the volume does not answer";
  const code = errnoOf(error);
  if (code === undefined) throw error;
  return `it cannot be written: ${code}`;
}

/** Can each file be written, or is there a folder in its place, or something else where a folder of it has to be? */
function hasRoom(listing: SkillListing | undefined, wanted: FileSums): boolean {
  if (!listing) return true;
  return Object.keys(wanted).every((path) => {
    const names = path.split("/");
    const above = names.slice(1).map((_, index) => names.slice(0, index + 1).join("/"));
    return (
      !listing.rest.has(path) &&
      above.every((folder) => !listing.files.has(folder) && listing.rest.get(folder) !== "other")
    );
  });
}

function isWithin(files: FileSums, all: FileSums): boolean {
  return Object.entries(files).every(([path, { sha256 }]) => all[path]?.sha256 === sha256);
}

/** Would writing `wanted` overwrite something else than `base`? Files that it has not are left where they are. */
function losesNothing(there: FileSums, base: FileSums, wanted: FileSums): boolean {
  return Object.entries(there).every(([path, { sha256 }]) => {
    const mine = wanted[path]?.sha256;
    return mine === undefined || sha256 === mine || sha256 === base[path]?.sha256;
  });
}

function skillFileLast(one: string, other: string): number {
  if (one === SKILL_FILE || other === SKILL_FILE) return one === other ? 0 : one === SKILL_FILE ? 1 : -1;
  return one < other ? -1 : 1;
}

function isSameFile(one: VolumeFile | undefined, other: VolumeFile): boolean {
  return one?.size === other.size && one.mtimeMs === other.mtimeMs;
}

function isPrefix(bytes: Uint8Array, whole: Uint8Array): boolean {
  return Buffer.from(bytes).equals(whole.subarray(0, bytes.length));
}
