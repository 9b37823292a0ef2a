/** Opens the daemon's side of a run's relay directory. */
import type { Owner } from "../../agent-folder.ts";
import type { AdvertisedTool, Relay } from "../port.ts";
import { makeFolder, type RelayFolder } from "./folder.ts";
import { type FollowOptions, followRequests } from "./follow-requests.ts";
import { createSigner } from "./keys.ts";
import { isOfProtocol, MAX_LISTED_BYTES, TOOLS_FILE } from "./names.ts";

const SWEEP_AT_MOST = 10_000;

export interface RelayOptions extends Omit<FollowOptions, "isOutside"> {
  /** Its parent is there. */
  readonly directory: string;
  readonly runId: string;
  /** What the shim advertises. */
  readonly tools: readonly AdvertisedTool[];
  /** Who the shim runs as; null: as the daemon. */
  readonly agentUser: Owner | null;
  /**
   * The public key of a runner outside the pod, which then answers all requests: no event is raised, and nothing is
   * answered here. The files of dead shims are removed all the same.
   */
  readonly outsideKey?: string | undefined;
}

/** Resolves when the tools are there to be read and requests are looked for. Rejects when the pod's disk fails. */
export async function openRelay(options: RelayOptions): Promise<Relay> {
  const { directory, runId, tools, agentUser, outsideKey } = options;
  const folder = await makeFolder(directory, agentUser);
  try {
    await sweep(folder);
    await folder.publish(TOOLS_FILE, JSON.stringify(tools.map(advertised)));
    const signer = await createSigner(runId);
    const isOutside = outsideKey !== undefined;
    const followed = followRequests({ ...options, isOutside }, folder, signer);
    return { ...followed, directory, publicKey: outsideKey ?? signer.publicKey };
  } catch (error) {
    await folder.close();
    throw error;
  }
}

/** What the model may know, of tools that may say more than that. */
function advertised({ name, description, inputSchema, readOnly }: AdvertisedTool): AdvertisedTool {
  return { name, description, inputSchema, readOnly };
}

/** What a crash left. */
async function sweep(folder: RelayFolder): Promise<void> {
  if ((await folder.look()).bytes > MAX_LISTED_BYTES) return;
  const left = (await folder.names()).filter(isOfProtocol).slice(0, SWEEP_AT_MOST);
  for (const name of left) await folder.remove(name);
}
