/** `cancel`: end a run. */
import { defineCommand } from "./command.ts";
import { CONNECTION, CONNECTION_HELP, connect } from "./connect.ts";
import { EXIT } from "./exit-codes.ts";
import { UsageError } from "./io.ts";

export const { main } = defineCommand({
  usage: "cancel [options] RUN_ID",
  about: ["Ends a run, and refuses its id for a minute. Succeeds for an unknown run too."],
  options: {
    wait: { type: "boolean", about: "until all of its processes are gone" },
    ...CONNECTION,
  },
  sections: {
    ...CONNECTION_HELP,
    "Exit codes": ["0    done", "2    usage", "4    the daemon cannot be reached", "5    the daemon refused"],
  },
  positionals: { min: 1, max: 1, name: "RUN_ID" },
  async run(values, [runId = ""], io) {
    if (runId === "" || runId === "." || runId === "..") throw new UsageError(`"${runId}" is no run id`);
    const wait = values.wait ?? false;
    await (await connect(values, io)).cancel(runId, { wait });
    await io.stdout.write(wait ? "ended\n" : "cancelled\n");
    return EXIT.ok;
  },
});
