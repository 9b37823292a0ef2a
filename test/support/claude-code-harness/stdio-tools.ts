/** An MCP server on stdio with one tool that only reads, in the place of the run's shim. */
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "tools", version: "1" });
server.registerTool(
  "ask_someone",
  { description: "Asks someone.", inputSchema: { question: z.string() }, annotations: { readOnlyHint: true } },
  () => ({ content: [{ type: "text", text: "somebody answered" }] }),
);
await server.connect(new StdioServerTransport());
