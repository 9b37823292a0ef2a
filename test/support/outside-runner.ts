/**
 * A runner outside the pod, written after docs/relay.md and with nothing of the product: it lists, reads, writes and
 * deletes files, as a sandbox provider's file API can, and signs with a key of its own.
 */
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { readdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";

export interface OutsideRequest {
  readonly name: string;
  readonly toolName: string;
  readonly toolCallId: string;
  readonly args: unknown;
}

export type OutsideAnswer =
  | { readonly kind: "success" | "failure"; readonly body: string }
  | { readonly kind: "pause"; readonly body: "" };

export class OutsideRunner {
  /** For `input.relay.publicKey`. */
  readonly publicKey: string;
  readonly #privateKey: KeyObject;
  readonly #answered = new Set<string>();

  constructor(
    private readonly directory: string,
    private readonly runId: string,
  ) {
    const pair = generateKeyPairSync("ed25519");
    this.#privateKey = pair.privateKey;
    this.publicKey = pair.publicKey.export({ format: "jwk" }).x ?? "";
  }

  /** The requests that are there and not answered. */
  async requests(): Promise<OutsideRequest[]> {
    const found: OutsideRequest[] = [];
    for (const file of await readdir(this.directory)) {
      const name = /^([0-9a-f]{32})\.req\.json$/.exec(file)?.[1];
      if (name === undefined || this.#answered.has(name)) continue;
      const text = await readFile(join(this.directory, file), "utf8").catch(() => undefined);
      if (text !== undefined) found.push({ name, ...JSON.parse(text) });
    }
    return found;
  }

  async answer(name: string, { kind, body }: OutsideAnswer): Promise<void> {
    this.#answered.add(name);
    const bytes = Buffer.from(JSON.stringify(["dispatchd-relay-1", this.runId, name, kind, body]));
    const signature = sign(null, bytes, this.#privateKey).toString("base64url");
    const fields =
      kind === "success"
        ? { ok: true, text: body }
        : kind === "failure"
          ? { ok: false, error: body }
          : { ok: true, paused: true };
    const temporary = join(this.directory, `.${name}.tmp`);
    await writeFile(temporary, JSON.stringify({ ...fields, signature }));
    await rename(temporary, join(this.directory, `${name}.res.json`));
  }

  /** Answers whatever comes until the signal aborts, looking again and again as a file API makes one do. */
  async serve(respond: (request: OutsideRequest) => OutsideAnswer, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      for (const request of await this.requests()) await this.answer(request.name, respond(request));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}
