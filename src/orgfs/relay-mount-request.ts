/** The control plane's mount request on its way to the sidecar: checked, and put into its control file as a whole. */
import { writeWhole } from "../disk.ts";
import { errnoOf, HttpError } from "../errors.ts";
import type { Log } from "../log/port.ts";

export interface MountRequestRelay {
  /** `written: false` when there is no sidecar. Throws HttpError `bad_input`, or `internal` when it cannot be written. */
  relay(request: unknown): Promise<{ readonly written: boolean }>;
}

const MAX_REQUEST_BYTES = 1 << 20;

export function createMountRequestRelay(path: string | null, log: Log): MountRequestRelay {
  let last: Promise<unknown> = Promise.resolve();
  return {
    async relay(request) {
      const text = await checked(request);
      if (path === null) return { written: false };
      // One after the other: the request that came last is the one that stays.
      const written = last.then(() => writeWhole(path, text));
      last = written.catch(() => {}); // Said to whoever asked for it.
      try {
        await written;
      } catch (error) {
        log.error("mount request not written", { reason: errnoOf(error) });
        throw new HttpError("internal", `the sidecar's control file cannot be written: ${errnoOf(error) ?? "unknown"}`);
      }
      log.info("mount request relayed", { bytes: Buffer.byteLength(text) });
      return { written: true };
    },
  };
}

async function checked(request: unknown): Promise<string> {
  const { mountRequestSchema } = await import("./mount-request.ts");
  const { success, error } = mountRequestSchema.safeParse(request);
  if (!success) {
    const [issue] = error.issues;
    throw new HttpError("bad_input", `${issue?.path.join(".") || "body"}: ${issue?.message}`);
  }
  const text = JSON.stringify(request);
  if (Buffer.byteLength(text) > MAX_REQUEST_BYTES) {
    throw new HttpError("bad_input", `body: at most ${MAX_REQUEST_BYTES} bytes`);
  }
  return text;
}
