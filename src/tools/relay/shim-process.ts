/** Is the process that made a request still there? Its id may be somebody else's by now, so it is told by its start. */
import { readFile } from "node:fs/promises";
import { errnoOf } from "../../errors.ts";

/** Among the fields after the name, which may hold anything: `state`, and the start in clock ticks since boot. */
const STATE = 0;
const START = 19;

/**
 * When the process started; undefined: there is none of this id, or it is dead and waits to be reaped. Where that cannot
 * be seen, every process is one that started at the same unknown time.
 */
export async function startOf(pid: number): Promise<string | undefined> {
  let text: string;
  try {
    text = await readFile(`/proc/${pid}/stat`, "latin1");
  } catch (error) {
    const code = errnoOf(error);
    return code === "ENOENT" || code === "ESRCH" ? undefined : "unknown";
  }
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return fields[STATE] === "Z" || fields[STATE] === "X" ? undefined : fields[START];
}
