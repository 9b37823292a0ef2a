/** What the daemon starts the shim with. Nothing in it is secret: every process of the pod can read it. */
import { parseRecord } from "../../disk.ts";

export const SHIM_USAGE = `dispatchd mcp --relay DIR --run ID --key PUBLICKEY --call-id-meta KEY --end-turn-meta JSON

Serves the tools of one run over MCP on stdin and stdout, as the harness starts it. Calls go to the run's relay directory.

  --relay DIR            the relay directory
  --run ID               the run
  --key PUBLICKEY        verifies answers: Ed25519, base64url of 32 bytes
  --call-id-meta KEY     where in _meta of a call the client gives its own id of it
  --end-turn-meta JSON   _meta of a result that ends the turn
  --tool-meta JSON       _meta of every tool in the list (none)
  --progress-ms N        how often a call that waits tells its progress (10000)
`;

const DEFAULT_PROGRESS_MS = 10_000;
const REQUIRED = ["--relay", "--run", "--key", "--call-id-meta", "--end-turn-meta"] as const;
const KNOWN = new Set<string>([...REQUIRED, "--tool-meta", "--progress-ms"]);

export interface ShimArguments {
  readonly directory: string;
  readonly runId: string;
  readonly publicKey: string;
  readonly callIdMeta: string;
  readonly endTurnMeta: Readonly<Record<string, unknown>>;
  readonly toolMeta: Readonly<Record<string, unknown>>;
  readonly progressMs: number;
}

/** Or what is wrong with them. */
export function parseShimArguments(args: readonly string[]): ShimArguments | string {
  const given = new Map<string, string>();
  for (let at = 0; at < args.length; at += 2) {
    const [flag = "", value] = args.slice(at, at + 2);
    if (!KNOWN.has(flag)) return `unknown option ${flag}`;
    if (value === undefined) return `${flag} needs a value`;
    given.set(flag, value);
  }
  const missing = REQUIRED.filter((flag) => !given.get(flag));
  if (missing.length > 0) return `${missing.join(", ")} missing`;
  const endTurnMeta = parseRecord(given.get("--end-turn-meta"));
  if (!endTurnMeta) return "--end-turn-meta is no JSON object";
  const toolMeta = parseRecord(given.get("--tool-meta") ?? "{}");
  if (!toolMeta) return "--tool-meta is no JSON object";
  const progressMs = Number(given.get("--progress-ms") ?? DEFAULT_PROGRESS_MS);
  if (!Number.isInteger(progressMs) || progressMs <= 0) return "--progress-ms must be a whole number above 0";
  const value = (flag: (typeof REQUIRED)[number]): string => given.get(flag) ?? "";
  return {
    directory: value("--relay"),
    runId: value("--run"),
    publicKey: value("--key"),
    callIdMeta: value("--call-id-meta"),
    endTurnMeta,
    toolMeta,
    progressMs,
  };
}
