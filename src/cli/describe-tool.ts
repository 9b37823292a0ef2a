/** A tool's call and its result, in a few words. Nothing of it is trusted to be safe or short. */
import { safeLine, safeText } from "./safe-text.ts";

/** What tells most about a call, in this order. */
const TELLING = ["command", "pattern", "query", "file_path", "path", "url", "description", "prompt"];

export function describeInput(input: unknown, maxChars: number): string {
  if (typeof input === "string") return safeLine(input, maxChars);
  if (typeof input !== "object" || input === null) return "";
  const fields = input as Record<string, unknown>;
  for (const name of TELLING) {
    const value = fields[name];
    if (typeof value === "string" && value.trim() !== "") return safeLine(markLineEnds(value, maxChars), maxChars);
  }
  return Object.keys(fields).length === 0 ? "" : safeLine(JSON.stringify(fields), maxChars);
}

/** Two commands must not read like one. */
function markLineEnds(text: string, maxChars: number): string {
  return text
    .trim()
    .slice(0, maxChars * 4)
    .replace(/\s*\n\s*/g, " ⏎ ");
}

/** The first line that says something, and how many more there are. */
export function describeOutput(output: unknown, maxChars: number): string {
  const lines = textOf(output)
    .split("\n")
    .filter((line) => line.trim() !== "");
  const rest = lines.length - 1;
  const more = rest > 0 ? ` (+${rest} line${rest === 1 ? "" : "s"})` : "";
  const first = safeLine(lines[0] ?? "", Math.max(8, maxChars - more.length));
  return first === "" && more === "" ? "no output" : `${first}${more}`;
}

/** The text of an output, in whichever of the common shapes it comes. */
function textOf(output: unknown): string {
  if (typeof output === "string") return output;
  if (Array.isArray(output)) return output.map(textOf).join("\n");
  if (typeof output !== "object" || output === null) return output === undefined ? "" : String(output);
  const { type, text, content, stdout, stderr } = output as Record<string, unknown>;
  if (typeof text === "string") return text;
  if (content !== undefined) return textOf(content);
  if (typeof stdout === "string") return [stdout, stderr].filter((part) => typeof part === "string").join("\n");
  return type === "image" || type === "file" ? `[${type}]` : JSON.stringify(output);
}

/** A tool's name, fit to be printed. */
export function describeName(toolName: unknown): string {
  return typeof toolName === "string" ? safeText(toolName).replace(/\s+/g, " ") : "tool";
}
