/**
 * What lies above the volumes may be the agent's to change: it could put a link in the place of `org`, or of a volume, and
 * have a worker, which has more rights than it, write where that leads. So a worker opens both before its job, by no link
 * that the agent can have made, and the job's paths go on from what was opened, whatever the names mean by then.
 *
 * No call here reaches a mount: one that hangs is the job's to notice.
 */
import { constants, fstatSync, lstatSync, openSync, type Stats } from "node:fs";
import { mkdir } from "node:fs/promises";
import { mayReplace, type Owner, openAgentFolder } from "../agent-folder.ts";
import { errnoOf } from "../errors.ts";

const { O_DIRECTORY, O_NOFOLLOW } = constants;
/** A descriptor that stands for the folder and asks its filesystem nothing. */
const O_PATH = 0o10000000;

export interface OrgGuard {
  /** `<APP_ROOT>/org`. */
  readonly root: string;
  readonly agent: Owner;
}

export interface Pins {
  /** Of something in `org` itself. */
  inOrg(path: string): Promise<string>;
  /** Of a volume, or something on it. Throws an error with a code when it cannot be reached safely. */
  onVolume(path: string): Promise<string>;
}

export function createPins({ root, agent }: OrgGuard): Pins {
  let opened: Promise<number> | undefined;

  /** A plain descriptor, open as long as the process lives: a handle that nobody holds is closed when it is collected. */
  async function openOrg(): Promise<number> {
    await mkdir(root).catch((error: unknown) => {
      if (errnoOf(error) !== "EEXIST") throw error;
    });
    const org = await openAgentFolder(root, agent);
    if (!org) throw refusal(root);
    try {
      return openSync(`/proc/self/fd/${org.fd}`, O_PATH | O_DIRECTORY);
    } finally {
      await org.close();
    }
  }

  const held = (): Promise<number> => {
    opened ??= openOrg();
    return opened;
  };

  function namesBelow(path: string): [string, ...string[]] {
    if (!path.startsWith(`${root}/`)) throw new Error(`${path} is no path below ${root}`);
    const [first = "", ...rest] = path.slice(root.length + 1).split("/");
    return [first, ...rest];
  }

  return {
    async inOrg(path) {
      return [`/proc/self/fd/${await held()}`, ...namesBelow(path)].join("/");
    },
    async onVolume(path) {
      const [volume, ...rest] = namesBelow(path);
      return [`/proc/self/fd/${openVolume(await held(), volume, agent)}`, ...rest].join("/");
    },
  };
}

function openVolume(org: number, volume: string, agent: Owner): number {
  const at = `/proc/self/fd/${org}/${volume}`;
  try {
    return openSync(at, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  } catch (error) {
    if (!["ELOOP", "ENOTDIR"].includes(errnoOf(error) ?? "")) throw error;
  }
  // No folder, so no mount, and nothing that hangs.
  const link: Stats = lstatSync(at);
  if (mayReplace(fstatSync(org), link, agent)) throw refusal(volume);
  return openSync(at, O_PATH | O_DIRECTORY);
}

function refusal(what: string): Error {
  return Object.assign(new Error(`${what} is a link that the agent can have made, or no folder`), { code: "ELOOP" });
}
