/**
 * `dispatchd mcp`: one run's tools over MCP, from the start of a harness's client to its end.
 *
 * - stdout is the protocol's. Whatever is to be said to people goes to stderr.
 * - It ends when stdin ends, when nobody reads stdout, when its parent is gone (another process may hold stdin open), and
 *   on a signal. The calls that still wait are withdrawn first, by removing their files.
 */
import type { Readable, Writable } from "node:stream";
import { messageOf } from "../../errors.ts";
import { type Asker, openAsker } from "../relay/ask-relay.ts";
import { parseShimArguments, SHIM_USAGE } from "./arguments.ts";
import { readTools } from "./tools-file.ts";

const EXIT_UNABLE = 1;
const EXIT_USAGE = 2;
const EXIT_INTERNAL = 70;

const PARENT_POLL_MS = 400;
/**
 * A run that is stopped sends its signal to all of its processes at once. The client is to go first: of a call whose server
 * is gone it records a failure, and may ask the model what to do about it.
 */
const CLIENT_FIRST_MS = 800;
/** For the files of the calls that wait, and for what was written to be taken. */
const LAST_STEPS_MS = 500;
/** The arguments of a call may be as large, and it still hears that they are too large. */
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;
const MAX_SAID = 50;

/** Where the first argument asks for no server. Not further on: a run's id may be anything. */
const QUESTIONS: ReadonlyMap<string | undefined, (version: string) => string> = new Map<
  string | undefined,
  (version: string) => string
>([
  ["--help", () => SHIM_USAGE],
  ["-h", () => SHIM_USAGE],
  ["--version", (version) => `${version}\n`],
]);

export interface ShimProgram {
  readonly args: readonly string[];
  readonly version: string;
  readonly stdin: Readable;
  readonly stdout: Writable;
  /** A line for people. */
  readonly writeError: (line: string) => void;
  readonly parent: () => number;
  readonly onSignal: (listener: () => void) => void;
  readonly onFault: (listener: (error: unknown) => void) => void;
}

/** Resolves with the exit code. */
export async function runShim(program: ShimProgram): Promise<number> {
  const answer = QUESTIONS.get(program.args[0]);
  if (answer) {
    await finish(program.stdout, answer(program.version));
    return 0;
  }
  const say = sayer(program.writeError);
  const options = parseShimArguments(program.args);
  if (typeof options === "string") {
    say(options);
    program.writeError(SHIM_USAGE);
    return EXIT_USAGE;
  }
  const ended = whenToEnd(program, say);
  const opening = openAsker({ ...options, say });
  opening.catch(() => {}); // Told below.
  // Most of the start: loading the protocol. The rest goes on beside it.
  const [{ serveTools }, { answerUnreadable }, { StdioServerTransport }] = await Promise.all([
    import("./serve-tools.ts"),
    import("./answer-unreadable.ts"),
    import("@modelcontextprotocol/sdk/server/stdio.js"),
  ]);
  let asker: Asker;
  let server: ReturnType<typeof serveTools>;
  try {
    asker = await opening;
    const tools = await readTools(asker.folder, say);
    server = serveTools({
      ...options,
      version: program.version,
      tools,
      ask: asker.ask,
      isStopped: ended.isStopped,
    });
  } catch (error) {
    say(`cannot serve the tools of this run: ${messageOf(error)}`);
    return EXIT_UNABLE;
  }
  server.onerror = (error) => say(messageOf(error).replace(/\s+/g, " ").slice(0, 500));
  server.onclose = () => ended.resolve(EXIT_UNABLE);
  const messages = program.stdin.pipe(answerUnreadable((line) => program.stdout.write(line)));
  await server.connect(new StdioServerTransport(messages, program.stdout, { maxBufferSize: MAX_MESSAGE_BYTES }));
  const code = await ended.promise;
  await within(LAST_STEPS_MS, conclude(asker, program.stdout));
  return code;
}

interface Ending {
  readonly promise: Promise<number>;
  readonly resolve: (code: number) => void;
  /** A signal said so: the client got it too. */
  readonly isStopped: () => boolean;
}

function whenToEnd({ stdin, stdout, parent, onSignal, onFault }: ShimProgram, say: (text: string) => void): Ending {
  const { promise, resolve } = Promise.withResolvers<number>();
  for (const event of ["end", "close", "error"]) stdin.on(event, () => resolve(0));
  // EPIPE: the client is gone.
  stdout.on("error", () => resolve(0));
  let isStopped = false;
  onSignal(() => {
    isStopped = true;
    setTimeout(() => resolve(0), CLIENT_FIRST_MS);
  });
  onFault((error) => {
    say(`a fault: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    resolve(EXIT_INTERNAL);
  });
  const first = parent();
  const timer = setInterval(() => {
    if (parent() !== first) resolve(0);
  }, PARENT_POLL_MS);
  promise.finally(() => clearInterval(timer));
  return { promise, resolve, isStopped: () => isStopped };
}

/** What was asked before the end, and needs no waiting for, is still answered. */
async function conclude(asker: Asker, stdout: Writable): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
  await asker.close();
  await finish(stdout);
}

function finish(stdout: Writable, text = ""): Promise<void> {
  return new Promise((resolve) => {
    stdout.end(text, () => resolve());
  });
}

async function within(ms: number, work: Promise<void>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([work, late]);
  clearTimeout(timer);
}

/** A client that sends rubbish without end does not fill the log with it. */
function sayer(writeError: (line: string) => void): (text: string) => void {
  let said = 0;
  return (text) => {
    if (++said <= MAX_SAID) writeError(`dispatchd mcp: ${text}\n`);
    if (said === MAX_SAID) writeError("dispatchd mcp: nothing more is said\n");
  };
}
