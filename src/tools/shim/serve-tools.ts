/** The run's tools as an MCP server. Every call is handed to the relay; what comes back is its result. */
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import {
  type CallToolResult,
  ErrorCode,
  ListToolsRequestSchema,
  McpError,
  type ServerNotification,
  type Tool,
} from "@modelcontextprotocol/sdk/types.js";
import * as z from "zod/v4";
import { pauseText } from "../../pause-text.ts";
import type { AdvertisedTool } from "../port.ts";
import type { AskResult, RelayCall } from "../relay/ask-relay.ts";
import { isId } from "../relay/request-file.ts";

export interface ServeToolsOptions {
  readonly version: string;
  readonly tools: readonly AdvertisedTool[];
  readonly ask: (call: RelayCall, signal: AbortSignal) => Promise<AskResult>;
  readonly callIdMeta: string;
  readonly endTurnMeta: Readonly<Record<string, unknown>>;
  /** Of every tool in the list. */
  readonly toolMeta: Readonly<Record<string, unknown>>;
  readonly progressMs: number;
  /** With its client: that is not to record the end as the result of a call, and go on with it. */
  readonly isStopped: () => boolean;
}

/** The protocol's own schema rebuilds the arguments, and loses a key like `__proto__` on the way. */
const CallRequest = z.object({
  method: z.literal("tools/call"),
  params: z.looseObject({ name: z.string(), arguments: z.unknown().optional() }),
});

export function serveTools(options: ServeToolsOptions): Server {
  const { version, tools, ask, callIdMeta, endTurnMeta, toolMeta, progressMs, isStopped } = options;
  const server = new Server(
    { name: "dispatchd", version },
    // Nothing is asked of the client that would have to be validated; the usual validator takes time to be made.
    { capabilities: { tools: {} }, jsonSchemaValidator: { getValidator: () => () => NEVER_VALID } },
  );
  const described = tools.map((tool) => describe(tool, toolMeta));
  const names = new Set(tools.map(({ name }) => name));

  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: described }));
  server.setRequestHandler(CallRequest, async ({ params }, { signal, _meta, sendNotification }) => {
    if (!names.has(params.name)) throw new McpError(ErrorCode.InvalidParams, `no tool ${params.name}`);
    const toolCallId = _meta?.[callIdMeta];
    const stopTelling = tellProgress(_meta?.progressToken, progressMs, sendNotification);
    try {
      const call = { toolName: params.name, args: params.arguments ?? {} };
      const result = await ask({ ...call, toolCallId: isId(toolCallId) ? toolCallId : "" }, signal);
      if (result.type === "cancelled" && isStopped()) return await NEVER;
      return resultOf(result, params.name, endTurnMeta);
    } finally {
      stopTelling();
    }
  });
  return server;
}

const NEVER = new Promise<never>(() => {});
const NEVER_VALID = { valid: false, data: undefined, errorMessage: "nothing is validated here" } as const;

function describe(
  { name, description, inputSchema, readOnly }: AdvertisedTool,
  toolMeta: ServeToolsOptions["toolMeta"],
): Tool {
  // The protocol has objects alone as arguments, and says so in the schema.
  return {
    name,
    description,
    inputSchema: { ...inputSchema, type: "object" },
    annotations: { readOnlyHint: readOnly },
    ...(Object.keys(toolMeta).length > 0 ? { _meta: { ...toolMeta } } : {}),
  };
}

function resultOf(result: AskResult, toolName: string, endTurnMeta: ServeToolsOptions["endTurnMeta"]): CallToolResult {
  switch (result.type) {
    case "success":
      return { content: [{ type: "text", text: result.text }] };
    case "failure":
    case "lost":
      return { content: [{ type: "text", text: result.error }], isError: true };
    case "pause":
      return { content: [{ type: "text", text: pauseText(toolName) }], _meta: { ...endTurnMeta } };
    case "cancelled":
      // Of a call that the client called off nothing is sent at all.
      return { content: [{ type: "text", text: "The end came before an answer." }], isError: true };
  }
}

/** A client that hears nothing for long may give the call up. */
function tellProgress(
  token: string | number | undefined,
  everyMs: number,
  send: (notification: ServerNotification) => Promise<void>,
): () => void {
  if (token === undefined) return () => {};
  let progress = 0;
  const timer = setInterval(() => {
    const params = { progressToken: token, progress: ++progress, message: "waiting for an answer" };
    send({ method: "notifications/progress", params }).catch(() => {}); // Told by the end of the connection.
  }, everyMs);
  return () => clearInterval(timer);
}
