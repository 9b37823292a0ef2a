/**
 * The user's message as content blocks of the Messages API. Files travel in the message as `data:` URLs: images, PDFs
 * and texts become blocks of their own; for any other the model gets a sentence that it could not be passed on, so that
 * it can say so instead of answering as if nothing had been attached.
 */
import { TurnFailure } from "./turn-failure.ts";
import { isRecord } from "./turn-request.ts";

const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"] as const;
type ImageType = (typeof IMAGE_TYPES)[number];

/** What is text although its type does not begin with `text/`. */
const TEXT_TYPE =
  /^(text\/.+|application\/(json|xml|x?yaml|toml|sql|graphql|javascript|typescript|x-(sh|yaml|ndjson|httpd-php))|.+\+(json|xml))$/;

export type PromptBlock =
  | { readonly type: "text"; readonly text: string }
  | {
      readonly type: "image";
      readonly source: { readonly type: "base64"; readonly media_type: ImageType; readonly data: string };
    }
  | {
      readonly type: "document";
      readonly source:
        | { readonly type: "base64"; readonly media_type: "application/pdf"; readonly data: string }
        | { readonly type: "text"; readonly media_type: "text/plain"; readonly data: string };
      readonly title?: string;
    };

/** Throws TurnFailure when the message says nothing at all. */
export function promptBlocks(userMessage: unknown): PromptBlock[] {
  const blocks = partsOf(userMessage).flatMap(blockOf);
  if (blocks.length === 0) throw new TurnFailure("turn_failed", "the user message is empty");
  return blocks;
}

function partsOf(userMessage: unknown): readonly unknown[] {
  if (typeof userMessage === "string") return [{ type: "text", text: userMessage }];
  if (!isRecord(userMessage)) return [];
  if (Array.isArray(userMessage.parts)) return userMessage.parts;
  if (Array.isArray(userMessage.content)) return userMessage.content;
  return [{ type: "text", text: userMessage.content }];
}

function blockOf(part: unknown): PromptBlock[] {
  if (!isRecord(part)) return [];
  // The API refuses blank text blocks.
  if (part.type === "text")
    return typeof part.text === "string" && part.text.trim() ? [{ type: "text", text: part.text }] : [];
  if (part.type !== "file") return [];
  const name = typeof part.filename === "string" && part.filename ? part.filename : "a file";
  const declared = typeof part.mediaType === "string" ? part.mediaType : "";
  const file = typeof part.url === "string" ? readDataUrl(part.url) : undefined;
  if (!file) return [notPassed(name, declared, "only files that travel in the message itself (data: URLs) can be")];
  return [fileBlock(name, typeOf(declared, file.mediaType), file.bytes)];
}

/** Of the two that say what a file is, the message's goes before, unless it says nothing. */
function typeOf(declared: string, ofUrl: string): string {
  const [said = "", known = ""] = [declared, ofUrl].map((type) => type.toLowerCase().split(";")[0]?.trim());
  const saysNothing = said.includes("*") || said === "application/octet-stream";
  if (said === "") return known || "text/plain";
  return saysNothing && known ? known : said;
}

function fileBlock(name: string, mediaType: string, bytes: Buffer): PromptBlock {
  // The API refuses blank text blocks, and documents and images without a byte.
  const isBlank = bytes.length === 0 || (TEXT_TYPE.test(mediaType) && bytes.toString().trim() === "");
  if (isBlank) return { type: "text", text: `[The attached file ${JSON.stringify(name)} is empty.]` };
  const image = IMAGE_TYPES.find((type) => type === mediaType || (type === "image/jpeg" && mediaType === "image/jpg"));
  if (image) return { type: "image", source: { type: "base64", media_type: image, data: bytes.toString("base64") } };
  if (mediaType === "application/pdf") {
    const source = { type: "base64", media_type: "application/pdf", data: bytes.toString("base64") } as const;
    return { type: "document", source, title: name };
  }
  if (TEXT_TYPE.test(mediaType)) {
    const source = { type: "text", media_type: "text/plain", data: bytes.toString() } as const;
    return { type: "document", source, title: name };
  }
  return notPassed(name, mediaType, "only images (PNG, JPEG, GIF, WebP), PDFs and text files can be");
}

function notPassed(name: string, mediaType: string, why: string): PromptBlock {
  const type = mediaType ? ` (${mediaType})` : "";
  return {
    type: "text",
    text: `[The user attached ${JSON.stringify(name)}${type}, which could not be passed on: ${why}.]`,
  };
}

/** `mediaType` is empty where the URL does not say it. */
function readDataUrl(url: string): { mediaType: string; bytes: Buffer } | undefined {
  const comma = url.indexOf(",");
  if (!/^data:/i.test(url) || comma === -1) return undefined;
  const header = url.slice("data:".length, comma);
  const payload = url.slice(comma + 1);
  const base64 = /;\s*base64\s*$/i.test(header);
  const mediaType = header.split(";")[0] ?? "";
  try {
    const bytes = base64 ? Buffer.from(payload, "base64") : Buffer.from(decodeURIComponent(payload));
    return { mediaType, bytes };
  } catch {
    // A malformed percent escape: the file is reported as not passed on.
    return undefined;
  }
}
