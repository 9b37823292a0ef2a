/**
 * One large line of a harness, read as `harness-line.ts` reads the others, but where it lies: of a million small chunks
 * no object is made, and nothing goes to the daemon's thread but what they come to.
 */
import { isUtf8 } from "node:buffer";
import type { Chunk } from "./frame.ts";
import type { HarnessFrame } from "./harness-line.ts";
import { SESSION_ID } from "./harness-line.ts";
import { concerns, type Interest } from "./interest.ts";
import { JsonRefusal, JsonScanner } from "./json-scanner.ts";
import { OpenParts, type OpenState } from "./open-parts.ts";

export interface LineContext {
  /** Of the message, before this line. */
  readonly open: OpenState;
  /** Without one, nothing in the line concerns the run's tools. */
  readonly interest?: Interest | undefined;
}

/** As `HarnessFrame`, but its body is bytes, and instead of its chunks there is what they come to. */
export interface LargeFrame extends Pick<HarnessFrame, "sessionId" | "outcome"> {
  readonly body: Uint8Array;
  readonly hasChunks: boolean;
  /** In the whole line. */
  readonly values: number;
  /** What is open after it. */
  readonly open: OpenState;
  /** A chunk of it is what `interest` asks for. */
  readonly concerned: boolean;
}

/** Deeper is no frame. */
const BOUNDS = { depth: 10_000, keys: Number.POSITIVE_INFINITY, values: Number.POSITIVE_INFINITY };
/** Of an outcome, which the daemon reads as a whole. The inputs of parked calls are a third of it, if they may be signed. */
const MAX_OUTCOME_VALUES = 100_000;
const OPEN_LIST = 0x5b;
const OPEN_OBJECT = 0x7b;
const CARRIAGE_RETURN = 0x0d;
const KEY = Buffer.from('"chunks":');

/** Of chunks with other types nothing is noted, and the run's tools have nothing to do with them. */
const NOTED =
  /^(start|start-step|finish-step|reset-step|finish|abort|(text|reasoning)-(start|end)|tool-(?!input-delta).*)$/;

/** Undefined for a line that is no frame. The body of the frame lies in `given`, which is written to. */
export function readLargeLine(given: Buffer, context: LineContext): LargeFrame | undefined {
  const bytes = isUtf8(given) ? given : Buffer.from(given.toString("utf8"));
  const scanner = new JsonScanner(bytes, BOUNDS);
  let chunks: ChunkList | undefined;
  let outcome: HarnessFrame["outcome"];
  let sessionId: string | undefined;
  try {
    // Of a key that is there twice, the second counts.
    scanner.eachMember((key) => {
      if (key === "chunks") chunks = readChunks(scanner, context);
      else if (key === "outcome") outcome = readOutcome(scanner);
      else if (key === "session") sessionId = readSession(scanner);
      else scanner.skip();
    });
    scanner.end();
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof JsonRefusal) return undefined;
    throw error;
  }
  if (!chunks && !outcome) return undefined;
  return {
    body: chunks ? bodyOf(bytes, chunks) : Buffer.concat([KEY, Buffer.from("[]}")]),
    hasChunks: chunks?.isEmpty === false,
    values: scanner.values,
    open: chunks?.open ?? context.open,
    concerned: chunks?.concerned ?? context.interest?.everything ?? false,
    ...(sessionId === undefined ? {} : { sessionId }),
    ...(outcome ? { outcome } : {}),
  };
}

interface ChunkList {
  readonly start: number;
  readonly end: number;
  readonly isEmpty: boolean;
  readonly open: OpenState;
  readonly concerned: boolean;
}

function readChunks(scanner: JsonScanner, { open, interest }: LineContext): ChunkList | undefined {
  if (scanner.peek() !== OPEN_LIST) {
    scanner.skip();
    return undefined;
  }
  const start = scanner.at;
  const parts = new OpenParts(open);
  let isEmpty = true;
  let concerned = interest?.everything ?? false;
  // The same object for all of them: nobody keeps it.
  const chunk: Record<string, unknown> = {};
  let isBlank = true;
  const takeMember = (key: string): void => {
    if (!OUTLINE.has(key)) {
      scanner.skip();
      return;
    }
    chunk[key] = scanner.scalar();
    isBlank = false;
  };
  scanner.eachElement(() => {
    isEmpty = false;
    if (scanner.peek() !== OPEN_OBJECT) return scanner.skip();
    if (!isBlank) for (const key of OUTLINE) chunk[key] = undefined;
    isBlank = true;
    scanner.eachMember(takeMember);
    if (typeof chunk.type !== "string" || !NOTED.test(chunk.type)) return;
    parts.note(chunk as Chunk);
    concerned ||= interest !== undefined && concerns(interest, chunk as Chunk);
  });
  return { start, end: scanner.at, isEmpty, open: parts.state, concerned };
}

/** As much of a chunk as `OpenParts.note` and `concerns` look at. */
const OUTLINE: ReadonlySet<string> = new Set(["type", "id", "messageId", "toolCallId", "toolName", "preliminary"]);

function readOutcome(scanner: JsonScanner): HarnessFrame["outcome"] {
  if (scanner.peek() !== OPEN_OBJECT) {
    scanner.skip();
    return undefined;
  }
  const entries: [string, unknown][] = [];
  let left = MAX_OUTCOME_VALUES;
  scanner.eachMember((key) => {
    scanner.peek();
    const { at: start, values } = scanner;
    scanner.skip();
    const size = scanner.values - values;
    if (size > left) return;
    left -= size;
    entries.push([key, scanner.parse(start)]);
  });
  return { type: undefined, ...Object.fromEntries(entries) };
}

function readSession(scanner: JsonScanner): string | undefined {
  if (scanner.peek() !== OPEN_OBJECT) {
    scanner.skip();
    return undefined;
  }
  let id: unknown;
  scanner.eachMember((key) => {
    if (key === "id") id = scanner.scalar();
    else scanner.skip();
  });
  return typeof id === "string" && SESSION_ID.test(id) ? id : undefined;
}

/**
 * The list with `"chunks":` before it and a brace behind it, made where it lies: megabytes are moved, not copied. The
 * key is there in one spelling or another, and something behind the list too. Outside of strings a carriage return is
 * white space in JSON, and the end of a line in server-sent events; within them JSON has none.
 */
function bodyOf(bytes: Buffer, { start, end }: ChunkList): Uint8Array {
  KEY.copy(bytes, start - KEY.length);
  bytes[end] = 0x7d;
  const body = bytes.subarray(start - KEY.length, end + 1);
  for (let at = body.indexOf(CARRIAGE_RETURN); at >= 0; at = body.indexOf(CARRIAGE_RETURN, at)) body[at] = 0x20;
  return body;
}
