/** The compiler of schemas writes code, and the daemon is one minified file: what it is given has to reach it there, too. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { TestDaemon } from "../support/daemon.ts";

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await TestDaemon.start({ env: { HARNESS_CAPABILITIES: JSON.stringify({ clientTools: "shim" }) } });
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

/** Refused, or refused for something behind the tools: an attempt to a run that is not there. */
async function refusal(inputSchema: Record<string, unknown>): Promise<unknown> {
  const tools = [{ name: "look_up", description: "Looks up.", kind: "client", inputSchema }];
  const input = { threadId: "thread-schemas", userMessage: "go", tools };
  const body = JSON.stringify({ runId: "run-schemas", after: 1, input });
  return (await daemon.fetch("/dispatch", { method: "POST", body })).json();
}

const DRAFTS = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"];

test("schemas with references and patterns compile in the binary, those that cannot are refused", async () => {
  for (const $schema of DRAFTS) {
    const used = {
      $schema,
      type: "object",
      properties: { next: { $ref: "#/definitions/node" }, key: { type: "string", pattern: "^[a-z]+$" } },
      definitions: { node: { type: "object", properties: { next: { $ref: "#/definitions/node" } } } },
    };
    expect(await refusal(used)).toMatchObject({ error: "unknown_run" });
    expect(await refusal({ ...used, definitions: {} })).toMatchObject({
      error: "bad_input",
      detail: expect.stringContaining("can't resolve reference #/definitions/node"),
    });
    expect(await refusal({ $schema, properties: { key: { pattern: "(" } } })).toMatchObject({
      error: "bad_input",
      detail: expect.stringContaining("input.tools.0.inputSchema: is no JSON Schema that can be used"),
    });
    expect(await refusal({ $schema, properties: { key: { type: "texte" } } })).toMatchObject({
      error: "bad_input",
      detail: expect.stringContaining("/properties/key/type must be"),
    });
  }
});
