/** What a turn begins with: the answers are put into the transcript, and what is said to Claude Code next is chosen. */

import type { TurnAnswer } from "../port.ts";
import { agreesToPlan } from "./own-questions.ts";
import { placeAnswers } from "./place-answers.ts";
import { restorePlan } from "./plan-file.ts";
import { type PromptBlock, promptBlocks } from "./prompt.ts";
import { TurnFailure } from "./turn-failure.ts";
import { present, type TurnRequest } from "./turn-request.ts";

/** In Claude Code's own words for a turn that goes on: none of the person's stands in a prompt that they did not write. */
const GO_ON: PromptBlock = { type: "text", text: "Continue from where you left off." };

export interface TurnBegin {
  /** Empty: Claude Code goes on by itself, with the plan that was agreed to. */
  readonly prompt: readonly PromptBlock[];
  readonly agreed?: TurnAnswer;
  /** An earlier attempt of the run has left plan mode already. */
  readonly leftPlanMode: boolean;
}

/** `resumable`: the id of the session, if it can be gone on with. Throws TurnFailure. */
export async function prepareTurn(turn: TurnRequest, resumable: string | undefined): Promise<TurnBegin> {
  const { input, answers, paths } = turn.document;
  const goesOn = answers.length > 0 && input.userMessage === undefined;
  const message = goesOn ? [] : promptBlocks(input.userMessage);
  if (resumable === undefined) {
    if (answers.length === 0) return { prompt: message, leftPlanMode: false };
    throw new TurnFailure("stale", "the session in which the questions were asked is not here");
  }
  const text = message.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
  const session = { configDir: paths.configDir, id: resumable };
  const { agreed, promptIsThere } = await placeAnswers(session, answers, goesOn ? undefined : text);
  if (agreed) await restorePlan(paths.configDir, agreed);
  const leftPlanMode = agreed === undefined && answers.some(agreesToPlan);
  const goOn = agreed ? [] : [GO_ON];
  return { prompt: goesOn || promptIsThere ? goOn : message, leftPlanMode, ...present("agreed", agreed) };
}
