/** What workers do for skills: plain JSON in and out. See port.ts of the folder above. */

import type { Owner } from "../../agent-folder.ts";
import type { SkillsLink } from "./link-skills.ts";

declare module "../port.ts" {
  interface OrgJobs {
    /** Brings the pod's copy of the org's own skills up to date, and links it into the config folder. */
    "skills-home": { input: HomeInput; output: BroughtHome };
    /** Copies a volume's read-only sets that changed. */
    "skills-sets": { input: SetsInput; output: BroughtSets };
    /** Takes what the agent wrote or changed to the volume. */
    "skills-return": { input: ReturnInput; output: ReturnedSkills };
  }
}

export interface VolumeInput {
  readonly volume: string;
  /** Where it is mounted. */
  readonly mountPath: string;
  readonly stateDir: string;
  /** Whom the pod's copies of the org's own skills belong to; null: the daemon's user. */
  readonly agent: Owner | null;
  /** The longest single call on the volume. */
  readonly callMs: number;
  readonly nowMs: number;
}

export interface HomeInput extends VolumeInput {
  /** The harness's config folder. */
  readonly configDir: string;
}

export interface SetsInput extends VolumeInput {
  /** "one": the volume is a set. "many": each of its folders is. */
  readonly layout: "one" | "many";
  /** Copies that a run still uses, older ones among them. */
  readonly used: readonly string[];
}

export interface ReturnInput extends VolumeInput {
  /** Where runs worked: skills left there are adopted. */
  readonly checkouts: readonly string[];
  /** A skill that changed since is left for later: it is being written. 0: none is. */
  readonly quietMs: number;
  /** The longest wait for another pod that writes the same skill. */
  readonly patienceMs: number;
}

export interface LeftOut {
  readonly name: string;
  readonly reason: string;
  /** An earlier copy is there instead. */
  readonly kept: boolean;
}

export interface Conflict {
  readonly name: string;
  /** The pod's version, under its own name. */
  readonly keptAs: string;
}

export interface Attempt {
  /** A call took too long, and nothing after it was tried. */
  readonly hung: boolean;
  readonly leftOut: readonly LeftOut[];
}

export interface BroughtHome extends Attempt {
  /** Skills that are in place now. */
  readonly count: number;
  readonly changed: readonly string[];
  readonly removed: readonly string[];
  readonly conflicts: readonly Conflict[];
  /** Whether the config folder's `skills` is the pod's copy. */
  readonly link: SkillsLink;
}

export interface BroughtSets extends Attempt {
  readonly sets: readonly { readonly name: string; readonly dir: string; readonly count: number }[];
  readonly changed: readonly string[];
}

export interface ReturnedSkills extends Attempt {
  readonly returned: readonly string[];
  readonly adopted: readonly string[];
  readonly conflicts: readonly Conflict[];
}
