/** What `POST /orgfs-config` takes. Loaded when the first one comes: it needs the schema library. */
import { z } from "zod";
import { isPathSegment } from "./mount-paths.ts";

const volume = z.string().refine(isPathSegment, "must be the name of one folder");

/** What is not known of a mount is for the sidecar to understand, credentials for example, and is passed on. */
export const mountRequestSchema = z.looseObject({ mounts: z.array(z.looseObject({ volume })).max(64).optional() });
