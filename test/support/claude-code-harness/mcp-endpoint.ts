/** A small MCP server over HTTP on loopback, as a control plane would offer one. */
import { textOf } from "../scripted-model/index.ts";

export interface McpTool {
  readonly name: string;
  readonly readOnly?: boolean;
}

export interface McpEndpointServer extends AsyncDisposable {
  readonly url: string;
  /** Headers of each request. */
  readonly headers: readonly Headers[];
  /** Names of the tools that were called. */
  readonly calls: readonly string[];
  /** How many clients have connected or tried to. */
  attempts(): number;
}

export interface McpEndpointOptions {
  readonly tools?: readonly McpTool[];
  /** Answers the first this many attempts with 503. */
  readonly failures?: number;
  /** Keeps each answer to `initialize` back for this long. */
  readonly slowMs?: number;
}

interface Rpc {
  readonly id?: number | string;
  readonly method: string;
  readonly params?: { readonly name?: string; readonly protocolVersion?: string };
}

export function startMcpEndpoint(options: McpEndpointOptions = {}): McpEndpointServer {
  const headers: Headers[] = [];
  const calls: string[] = [];
  let attempts = 0;
  const answer = async (rpc: Rpc): Promise<unknown> => {
    switch (rpc.method) {
      case "initialize":
        await Bun.sleep(options.slowMs ?? 0);
        return {
          protocolVersion: rpc.params?.protocolVersion ?? "2025-06-18",
          capabilities: { tools: {} },
          serverInfo: { name: "endpoint", version: "1" },
        };
      case "tools/list":
        return {
          tools: (options.tools ?? [{ name: "lookup", readOnly: true }]).map((tool) => ({
            name: tool.name,
            description: `The tool ${tool.name}.`,
            inputSchema: { type: "object", properties: { key: { type: "string" } } },
            annotations: { readOnlyHint: tool.readOnly === true },
          })),
        };
      case "tools/call":
        calls.push(rpc.params?.name ?? "");
        return { content: [{ type: "text", text: `answer of ${rpc.params?.name}` }] };
      case "ping":
        return {};
      default:
        return undefined;
    }
  };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      if (request.method !== "POST") return new Response(null, { status: 405 });
      headers.push(request.headers);
      const rpc = (await request.json()) as Rpc;
      if (rpc.method === "initialize") attempts += 1;
      if (attempts <= (options.failures ?? 0)) return new Response("not yet", { status: 503 });
      if (rpc.id === undefined) return new Response(null, { status: 202 });
      const result = await answer(rpc);
      const error = { code: -32601, message: "method not found" };
      return Response.json({ jsonrpc: "2.0", id: rpc.id, ...(result === undefined ? { error } : { result }) });
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}/mcp`,
    headers,
    calls,
    attempts: () => attempts,
    [Symbol.asyncDispose]: async () => {
      await server.stop(true);
    },
  };
}

/** The texts of all tool results that the model has seen in a request's messages. */
export function toolResultTexts(messages: readonly { readonly content: unknown }[]): string[] {
  return messages.flatMap((message) =>
    (Array.isArray(message.content) ? message.content : [])
      .filter((block) => block?.type === "tool_result")
      .map((block) => textOf(block.content)),
  );
}
