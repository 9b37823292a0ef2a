/**
 * What a reader sees as the output of a tool call. Text where the result is text, which it nearly always is; else the
 * result's blocks. A frame must fit into a line of the daemon's, so both are bounded here.
 */
import { isRecord, record } from "./turn-request.ts";

export const MAX_OUTPUT_CHARS = 512 * 1024;
/** Base64 of all images of one result: a screenshot or two pass, a rendered book does not. */
const MAX_IMAGE_CHARS = 4 * 1024 * 1024;

export function toolOutput(content: unknown): unknown {
  if (typeof content === "string") return bounded(content);
  if (!Array.isArray(content)) return "";
  if (content.every((block) => isRecord(block) && block.type === "text")) return bounded(textOfBlocks(content));
  let images = 0;
  return content.map((block) => {
    const { type, text, source } = record(block);
    if (type === "text") return { type: "text", text: bounded(String(text)) };
    const { media_type: mediaType, data } = record(source);
    if (typeof data !== "string") return { type: String(type) };
    images += data.length;
    if (images > MAX_IMAGE_CHARS) return { type: String(type), mediaType, omitted: "too large" };
    return { type: String(type), mediaType, data };
  });
}

/** The error text of a result that failed, without the tag that Claude Code puts around its own. */
export function toolErrorText(content: unknown): string {
  const text = typeof content === "string" ? content : textOfBlocks(Array.isArray(content) ? content : []);
  return bounded(text.replace(/^<tool_use_error>([\s\S]*)<\/tool_use_error>$/, "$1")) || "the tool failed";
}

/** What a subagent reported, without the list of its tools that Claude Code puts before it. */
export function subagentReport(content: unknown): string {
  const text = textOfBlocks(Array.isArray(content) ? content : []);
  return bounded(text.replace(/^\s*<tools-used-before-summary>.*?<\/tools-used-before-summary>\s*/s, ""));
}

export function textOfBlocks(blocks: readonly unknown[]): string {
  return blocks
    .flatMap((block) =>
      isRecord(block) && block.type === "text" && typeof block.text === "string" ? [block.text] : [],
    )
    .join("\n");
}

export function bounded(text: string): string {
  return text.length > MAX_OUTPUT_CHARS ? `${text.slice(0, MAX_OUTPUT_CHARS).toWellFormed()}\n[cut]` : text;
}
