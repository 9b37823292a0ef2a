/**
 * The plan of a session is a file beside the sessions, which only its own pod has. Before a plan that was agreed to is
 * carried out on another pod it is written there again. A file that is there already stays as it is: if its text is
 * another one, the agreement is not for it.
 */
import { constants } from "node:fs";
import { mkdir, open } from "node:fs/promises";
import { basename, join } from "node:path";
import { errnoOf } from "../../errors.ts";
import type { TurnAnswer } from "../port.ts";
import { record } from "./turn-request.ts";

const NEW = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

export async function restorePlan(configDir: string, answer: TurnAnswer): Promise<void> {
  const { plan, planFilePath } = record(answer.input);
  if (typeof plan !== "string" || typeof planFilePath !== "string") return;
  const name = basename(planFilePath);
  if (!/^[A-Za-z0-9][A-Za-z0-9_-]*\.md$/.test(name)) return;
  const folder = join(configDir, "plans");
  await mkdir(folder, { recursive: true });
  try {
    const file = await open(join(folder, name), NEW, 0o600);
    try {
      await file.writeFile(plan);
    } finally {
      await file.close();
    }
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") throw error;
  }
}
