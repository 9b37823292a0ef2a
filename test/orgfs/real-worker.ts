/** The worker as the binary has it, without the time that compiling takes. */
import { runOrgfsWorker } from "../../src/orgfs-worker.ts";

runOrgfsWorker().then((code) => process.exit(code));
