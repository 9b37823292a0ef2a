/**
 * What is added to Claude Code's own system prompt: the agent's instructions, where and for whom it works, and once,
 * for this turn, what it would otherwise have to invent: memory that is missing, skills that were not loaded, work
 * that was cut off.
 */
import type { TurnDocument } from "../port.ts";
import type { TurnFacts, TurnRequest } from "./turn-request.ts";

const MAX_FACT_CHARS = 200;

export interface StartNotices {
  /** The transcript of the session that was to be continued is not there or cannot be opened. */
  readonly sessionLost: boolean;
  /** Skills were left out, because a start with them did not come to its end. */
  readonly withoutSkills: boolean;
}

export function systemPromptAddition(turn: TurnRequest, start: StartNotices): string {
  return [
    turn.instructions,
    section("This environment", [...factLines(turn.facts), ...standingRules(turn)]),
    section("For this turn", notices(turn, start)),
  ]
    .filter((part) => part !== undefined)
    .join("\n\n");
}

function factLines(facts: TurnFacts): string[] {
  const lines: string[] = [];
  if (facts.repo) lines.push(`The checkout is of the repository ${oneLine(facts.repo)}.`);
  if (facts.branch) lines.push(`The branch to work on is ${oneLine(facts.branch)}.`);
  if (facts.user) lines.push(`The person you work for is ${oneLine(facts.user)}.`);
  if (facts.organization) lines.push(`Their organization is ${oneLine(facts.organization)}.`);
  return lines;
}

function standingRules(turn: TurnRequest): string[] {
  const rules = [
    "You work in a sandbox, in turns: the person reads what you write and can answer only after the turn. Shells and " +
      "servers that you leave in the background are ended together with the turn, and you are not woken for them: " +
      "wait for what you still need before you finish.",
  ];
  if (turn.readonly) {
    rules.push("This turn may only read: tools that change something are refused. Say what you would change instead.");
  }
  return rules;
}

function notices(turn: TurnRequest, start: StartNotices): string[] {
  const lines: string[] = [];
  const memory = memoryNotice(turn.document.session, start.sessionLost);
  if (memory) lines.push(memory);
  if (start.withoutSkills) {
    lines.push(
      "Skills could not be loaded for this turn, although this agent usually has some. Do without them, and say so " +
        "where it matters.",
    );
  } else if (turn.skillsMissing !== undefined) {
    lines.push(
      `Not all skills of the organization are there for this turn (${oneLine(turn.skillsMissing)}). Do without those, and ` +
        "say so where it matters.",
    );
  }
  if (turn.cutOffReason !== undefined) {
    lines.push(
      `The last turn was cut off by infrastructure before it ended (${oneLine(turn.cutOffReason)}). Some of its work may ` +
        "be done and some not. Before you go on, look at the checkout (git status, git log, git diff) and at the " +
        "branch, locally and on the remote, to see what exists. Do not do finished work again, and do not open a " +
        "second pull request: if there is one for this work, update it.",
    );
  }
  return lines;
}

function memoryNotice(session: TurnDocument["session"], lost: boolean): string | undefined {
  const because = session.reason ? ` (${oneLine(session.reason)})` : "";
  if (session.state === "stale-session" && !lost) {
    return (
      `What you remember of this conversation may be out of date${because}: its newest turns are missing. If the person ` +
      "refers to something that you do not find in it, look in the checkout or ask; do not guess."
    );
  }
  // A conversation that simply begins has neither a reason nor a session that was lost.
  if (!lost && (session.state !== "fresh" || session.reason === undefined)) return undefined;
  return (
    `Earlier turns of this conversation are not in your memory${because}. If the person refers to them, look in the ` +
    "checkout or ask; do not guess."
  );
}

function section(title: string, lines: readonly string[]): string | undefined {
  return lines.length === 0 ? undefined : `# ${title}\n\n${lines.map((line) => `- ${line}`).join("\n")}`;
}

/** Facts come from outside: one line each, so that none can look like an instruction of its own. */
function oneLine(fact: string): string {
  const line = fact.replaceAll(/\s+/g, " ").trim();
  return line.length > MAX_FACT_CHARS ? `${line.slice(0, MAX_FACT_CHARS)}…` : line;
}
