/**
 * What the model reads in the place of an answer while a call waits for a person. The shim writes it, and a harness finds
 * it again in its session when the answer comes: so it has one wording, in one place.
 */

const BEGINNING = "[waiting for the person] ";

export function pauseText(toolName: string): string {
  return `${BEGINNING}${toolName} was handed to the person in the conversation and has no result yet. Do not call it again: their answer takes the place of this text, and the conversation goes on with it.`;
}

export function isPauseText(text: string, toolName: string): boolean {
  return text === pauseText(toolName);
}

/**
 * What takes the place of the text of a pause when the conversation goes on without an answer. There may have been one: a
 * run that brought it may have been stopped before the session had it.
 */
export function unansweredText(toolName: string): string {
  return `[not answered] No answer to ${toolName} has reached the conversation, which went on without it. The question is closed. If it still matters, ask again by a new call.`;
}

/** What a call reads that was cut off before anybody answered it. */
export function cutOffText(toolName: string): string {
  return `[no result] The call of ${toolName} was cut off before it had a result: whether something was done is not known, and a question to the person is closed. If it still matters, call it again.`;
}

/** What a subagent reads instead: it cannot wait, and what it says last is all that its caller hears of it. */
export function reportText(toolName: string): string {
  return `${toolName} has to be answered by the person in the conversation, who cannot be asked from inside a subagent. Do not call it again. End here, and report to your caller what has to be asked, with the exact arguments for ${toolName}, so that the caller can call it.`;
}
