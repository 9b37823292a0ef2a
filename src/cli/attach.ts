/** `attach`: watch a run that somebody else dispatched. */
import { defineCommand, wholeNumber } from "./command.ts";
import { CONNECTION, CONNECTION_HELP, connect } from "./connect.ts";
import { EXIT_HELP } from "./exit-codes.ts";
import { UsageError } from "./io.ts";
import { watchRun } from "./watch-run.ts";

export const { main } = defineCommand({
  usage: "attach [options] RUN_ID",
  about: ["Shows a run, from its first frame or behind the one you have. Ctrl-C leaves; the run goes on."],
  options: {
    after: { type: "string", value: "SEQ", about: "begin behind this frame" },
    attempt: { type: "string", value: "N", about: "only this attempt; the newest by default" },
    json: { type: "boolean", about: "frames as they are, one JSON object a line" },
    ...CONNECTION,
  },
  sections: { ...CONNECTION_HELP, "Exit codes": EXIT_HELP },
  positionals: { min: 1, max: 1, name: "RUN_ID" },
  async run(values, [runId = ""], io) {
    const after = wholeNumber(values.after, "after") ?? 0;
    const attempt = wholeNumber(values.attempt, "attempt", 1);
    if (runId === "" || runId === "." || runId === "..") throw new UsageError(`"${runId}" is no run id`);
    const client = await connect(values, io);
    const run = client.attach(runId, { after, ...(attempt === undefined ? {} : { attempt }) });
    return (await watchRun(run, io, { json: values.json ?? false, onInterrupt: "leave" })).code;
  },
});
