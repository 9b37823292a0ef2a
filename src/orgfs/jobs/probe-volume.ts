/** Asks the volume something that only its backend can answer. */
import { opendir } from "node:fs/promises";

declare module "../port.ts" {
  interface OrgJobs {
    "volume-probe": {
      input: { readonly path: string };
      output: null;
    };
  }
}

/** Resolves when the volume's top folder could be listed. */
export async function probeVolume({ path }: { readonly path: string }): Promise<null> {
  const folder = await opendir(path);
  try {
    await folder.read();
  } finally {
    await folder.close();
  }
  return null;
}
