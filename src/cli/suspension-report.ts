/** A suspension for people, and for programs. */
import type { Suspension } from "../suspension/port.ts";
import { safeLine } from "./safe-text.ts";
import { withEscapes } from "./visible-text.ts";

/** `good`: signed by a listed key, and in its time. `unknown`: there is no key to check it with. */
export type Verdict =
  | { readonly type: "good"; readonly key: string }
  | { readonly type: "bad"; readonly reason: string; readonly key?: string }
  | { readonly type: "unknown"; readonly reason: string };

export interface InspectedSuspension {
  readonly verdict: Verdict;
  readonly form: "signed" | "unsigned";
  /** As the token names it: whether it is true is for the verdict. */
  readonly keyId: string | undefined;
  readonly bytes: number;
  readonly suspension: Suspension;
}

export function reportAsJson({ verdict, form, keyId, bytes, suspension }: InspectedSuspension): string {
  const { issuedAt, expiresAt, ...state } = suspension;
  const verified = verdict.type === "unknown" ? null : verdict.type === "good";
  const reason = verdict.type === "good" ? {} : { reason: verdict.reason };
  const times = { issuedAt: new Date(issuedAt).toISOString(), expiresAt: new Date(expiresAt).toISOString() };
  const facts = { verified, ...reason, form, ...(keyId === undefined ? {} : { keyId }), bytes, ...times };
  return `${visibleJson({ ...facts, ...state })}\n`;
}

export function reportAsText({ verdict, form, keyId, bytes, suspension }: InspectedSuspension, now: number): string {
  const { id, audience, organizationId, threadId, runId, mode, issuedAt, expiresAt, interrupts, subagents } =
    suspension;
  const facts: [name: string, value: string | undefined][] = [
    ["verdict", wordsOf(verdict)],
    ["form", keyId === undefined ? form : `${form}, names key ${line(keyId)}`],
    ["id", id],
    ["audience", line(audience)],
    ["organization", organizationId === undefined ? undefined : line(organizationId)],
    ["thread", line(threadId)],
    ["run", line(runId)],
    ["mode", mode === undefined ? undefined : line(mode)],
    ["issued", `${new Date(issuedAt).toISOString()}, ${distance(issuedAt - now)}`],
    ["expires", `${new Date(expiresAt).toISOString()}, ${distance(expiresAt - now)}`],
    ["bytes", String(bytes)],
  ];
  const lines = facts.flatMap(([name, value]) => (value === undefined ? [] : [`${name.padEnd(12)}  ${value}`]));
  for (const { id: interruptId, reason, toolName, toolCallId, toolHash, input } of interrupts) {
    lines.push("", `interrupt     ${line(interruptId)}  (${line(reason)})`);
    lines.push(`  tool        ${line(toolName)}${toolHash === undefined ? ", the harness's own" : ""}`);
    lines.push(`  call        ${line(toolCallId)}`, ...block(input));
  }
  for (const { toolName, toolCallId, input } of subagents ?? []) {
    lines.push("", `subagent      ${line(toolName)}`, `  call        ${line(toolCallId)}`, ...block(input));
  }
  return `${lines.join("\n")}\n`;
}

function wordsOf(verdict: Verdict): string {
  switch (verdict.type) {
    case "good":
      return `verified with key ${verdict.key}`;
    case "bad":
      return `NOT GOOD: ${verdict.reason}${verdict.key === undefined ? "" : ` (verified with key ${verdict.key})`}`;
    case "unknown":
      return `NOT VERIFIED: ${verdict.reason}; anybody may have written it`;
  }
}

function block(input: unknown): string[] {
  return [
    "  input",
    ...visibleJson(input, 2)
      .split("\n")
      .map((each) => `    ${each}`),
  ];
}

function line(text: string): string {
  return safeLine(withEscapes(text), 120);
}

function visibleJson(value: unknown, indent?: number): string {
  return withEscapes(JSON.stringify(value, null, indent));
}

function distance(ms: number): string {
  const seconds = Math.round(Math.abs(ms) / 1000);
  const [unit, size] = UNITS.find(([, each]) => seconds >= each * 2) ?? ["s", 1];
  const count = `${Math.floor(seconds / size)} ${unit}`;
  return ms < 0 ? `${count} ago` : `in ${count}`;
}

const UNITS = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
] as const;
