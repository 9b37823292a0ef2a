/** The tools of the run as the daemon left them for the shim. */
import type { AdvertisedTool } from "../port.ts";
import type { RelayFolder } from "../relay/folder.ts";
import { MAX_TOOLS_BYTES, TOOLS_FILE } from "../relay/names.ts";

/** Throws when there is no list. What is no tool in it is left out, and told. */
export async function readTools(folder: RelayFolder, say: (text: string) => void): Promise<readonly AdvertisedTool[]> {
  const read = await folder.read(TOOLS_FILE, MAX_TOOLS_BYTES);
  if (read.type !== "text") throw new Error(`${TOOLS_FILE}: ${read.type === "absent" ? "there is none" : read.why}`);
  const list = parseList(read.text);
  if (!list) throw new Error(`${TOOLS_FILE} is no list of tools`);
  const tools = list.filter(isTool);
  if (tools.length < list.length) say(`${list.length - tools.length} entries of ${TOOLS_FILE} are no tools: left out`);
  return tools;
}

function parseList(text: string): readonly unknown[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isTool(value: unknown): value is AdvertisedTool {
  if (typeof value !== "object" || value === null) return false;
  const { name, description, inputSchema, readOnly } = value as Partial<Record<keyof AdvertisedTool, unknown>>;
  return (
    typeof name === "string" &&
    name !== "" &&
    typeof description === "string" &&
    typeof readOnly === "boolean" &&
    typeof inputSchema === "object" &&
    inputSchema !== null &&
    !Array.isArray(inputSchema)
  );
}
