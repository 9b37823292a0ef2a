/**
 * Checks values against the JSON Schemas of a run's tools: draft-07 or 2020-12, by `$schema`, 2020-12 without one.
 *
 * The schemas are the control plane's, the values the agent's and hostile, and both are looked at on the daemon's own
 * thread. So a schema is looked through when it is read (0.2 ms) and compiled when it is first needed (1 to 10 ms), and a
 * check that takes more steps than an honest value needs is given up: branches that all go down the same reference
 * double with each level of the value, and a pattern may go back over its text for half a second.
 *
 * `format` is an annotation and checked by nobody. References stay within the schema.
 */
import Ajv07, { _, type Ajv, type ErrorObject, type KeywordCxt, type Options } from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import { canonicalJson } from "../canonical-json.ts";
import { cutMessage, messageOf } from "../errors.ts";
import type { JsonSchema } from "./port.ts";

/** What it says is wrong, in UTF-8 bytes at most. */
const MAX_MESSAGE_BYTES = 1024;
const MAX_PROBLEMS = 3;
/** References followed by one check: in the worst case, each of them a problem to be told, 0.4 s. */
const MAX_STEPS = 200_000;
/** Of one check, for all its patterns. */
const MAX_PATTERN_MS = 250;

/** A schema that cannot be used. The message says why, without the words of its own that may be long. */
export class JsonSchemaError extends Error {
  constructor(reason: string) {
    super(cutMessage(reason, MAX_MESSAGE_BYTES));
    this.name = "JsonSchemaError";
  }
}

export interface CompiledSchema {
  /** What is wrong with the value, and where: never the value itself. Undefined when nothing is. Throws never. */
  check(value: unknown): string | undefined;
}

interface Draft {
  readonly uri: string;
  readonly create: (options: Options) => Ajv;
  /** Checks schemas of this draft. Made when first needed: the schema of schemas takes 20 ms to compile. */
  schemas?: Ajv;
}

const DRAFT_07: Draft = {
  uri: "http://json-schema.org/draft-07/schema",
  create: (options) => new Ajv07(options),
};
const DRAFT_2020: Draft = {
  uri: "https://json-schema.org/draft/2020-12/schema",
  create: (options) => new Ajv2020(options),
};

const compiled = new WeakMap<JsonSchema, CompiledSchema>();

/** Throws JsonSchemaError. The same object gives the same result: it must not change. */
export function compileSchema(schema: JsonSchema): CompiledSchema {
  const known = compiled.get(schema);
  if (known) return known;
  const draft = draftOf(schema);
  let validate = isPlain(schema, draft) ? undefined : compile(schema, draft);
  const made: CompiledSchema = {
    check(value) {
      try {
        validate ??= compile(schema, draft);
        return validate(value);
      } catch (error) {
        const reason = error instanceof RangeError ? "it is nested too deep" : messageOf(error);
        return cutMessage(`cannot be checked: ${reason}`, MAX_MESSAGE_BYTES);
      }
    },
  };
  compiled.set(schema, made);
  return made;
}

function draftOf({ $schema }: JsonSchema): Draft {
  if ($schema === undefined) return DRAFT_2020;
  // People write either scheme, with and without an empty fragment.
  const name = typeof $schema === "string" ? $schema.replace(/^https?:/, "").replace(/#$/, "") : "";
  const draft = [DRAFT_07, DRAFT_2020].find(({ uri }) => uri.replace(/^https?:/, "") === name);
  if (!draft) throw new JsonSchemaError("$schema must be that of draft-07 or 2020-12");
  return draft;
}

const SHARED = {
  strict: false,
  logger: false,
  // What an object inherits is none of its properties.
  ownProperties: true,
  validateFormats: false,
  // It takes as long again, for code that runs once or twice.
  code: { optimize: false },
} as const satisfies Options;

/** Throws for what is no schema. False: only compiling tells whether this one can be used. */
function isPlain(schema: JsonSchema, draft: Draft): boolean {
  // It would be answered with a promise.
  if (schema.$async !== undefined) throw new JsonSchemaError("$async is not supported");
  draft.schemas ??= draft.create(SHARED);
  try {
    const isSchema = draft.schemas.validateSchema({ ...schema, $schema: draft.uri });
    if (!isSchema) throw new Error(describe(draft.schemas.errors));
    return hasPlainParts(schema, schema);
  } catch (error) {
    throw new JsonSchemaError(error instanceof RangeError ? "it is nested too deep" : messageOf(error));
  }
}

/** Keywords whose members are schemas under names of their own, and those that hold values. */
const SCHEMAS_BY_NAME = new Set(["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"]);
const VALUES = new Set(["const", "default", "enum", "examples"]);
const NAMES = new Set(["$anchor", "$dynamicAnchor", "$dynamicRef", "$id"]);

/**
 * Of what the schema of schemas says nothing about, patterns and references by path are looked at here: most schemas
 * have no more than these. Throws for a pattern that is none; false for a reference that leads nowhere or goes by name.
 */
function hasPlainParts(part: unknown, root: JsonSchema): boolean {
  if (typeof part !== "object" || part === null) return true;
  return Object.entries(part).every(([key, value]) => {
    if (VALUES.has(key)) return true;
    if (NAMES.has(key)) return false;
    if (key === "$ref") return leadsSomewhere(String(value), root);
    if (key === "pattern") patternOf(String(value));
    if (key === "patternProperties") for (const source of Object.keys(value)) patternOf(source);
    const parts = SCHEMAS_BY_NAME.has(key) ? Object.values(value) : [value];
    return parts.every((inner) => hasPlainParts(inner, root));
  });
}

function leadsSomewhere(reference: string, root: JsonSchema): boolean {
  if (!/^#(\/|$)/.test(reference)) return false;
  let place: unknown = root;
  for (const step of reference.split("/").slice(1)) {
    const key = decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
    const isThere = typeof place === "object" && place !== null && Object.hasOwn(place, key);
    place = isThere ? (place as Record<string, unknown>)[key] : undefined;
  }
  return typeof place === "boolean" || (typeof place === "object" && place !== null);
}

/** With an instance of its own: ids are known within an instance, and two tools may use the same ones. */
function compile(schema: JsonSchema, draft: Draft): (value: unknown) => string | undefined {
  const effort = new Effort();
  const ajv = draft.create({
    ...SHARED,
    meta: false,
    validateSchema: false,
    code: { ...SHARED.code, regExp: effort.patterns },
  });
  limit(ajv, effort);
  try {
    const validate = ajv.compile(withoutNullable(schema));
    return (value) => {
      effort.start();
      return validate(value) === true ? undefined : describe(validate.errors);
    };
  } catch (error) {
    throw new JsonSchemaError(messageOf(error));
  }
}

/** OpenAPI's word, which JSON Schema does not know. The compiler takes it for its own, and some uses of it for mistakes. */
function withoutNullable(schema: JsonSchema): JsonSchema {
  const text = JSON.stringify(schema);
  if (!text.includes('"nullable":')) return schema;
  return JSON.parse(text, function drop(this: object, key: string, value: unknown) {
    const isMistake = key === "nullable" && (value === false || (value === true && !Object.hasOwn(this, "type")));
    return isMistake ? undefined : value;
  });
}

/** What one check has cost so far. */
class Effort {
  #steps = 0;
  #patternMs = 0;

  start(): void {
    this.#steps = 0;
    this.#patternMs = 0;
  }

  readonly spend = (steps: number): void => {
    this.#steps += steps;
    if (this.#steps > MAX_STEPS) throw new Error("it takes too many steps");
  };

  /** Patterns that look at how long they take. What they find does not depend on it. */
  readonly patterns = Object.assign(
    (source: string) => {
      const pattern = patternOf(source);
      return {
        test: (text: string): boolean => {
          const startedAt = performance.now();
          const found = pattern.test(text);
          this.#patternMs += performance.now() - startedAt;
          if (this.#patternMs > MAX_PATTERN_MS) throw new Error("its patterns take too long");
          return found;
        },
        toString: () => String(pattern),
      };
    },
    // Its name in code that is written to a file, which this is not.
    { code: "patterns" },
  );
}

/** Replaces the keywords whose cost grows faster than the value. */
function limit(ajv: Ajv, effort: Effort): void {
  for (const keyword of ["$ref", "$dynamicRef"]) {
    const definition = ajv.getKeyword(keyword);
    if (typeof definition !== "object" || !("code" in definition)) continue;
    const { code } = definition;
    ajv.removeKeyword(keyword);
    ajv.addKeyword({
      keyword,
      schemaType: "string",
      code(context: KeywordCxt) {
        context.gen.code(_`${context.gen.scopeValue("func", { ref: effort.spend })}(1)`);
        code(context);
      },
    });
  }
  ajv.removeKeyword("uniqueItems");
  ajv.addKeyword({
    keyword: "uniqueItems",
    type: "array",
    schemaType: "boolean",
    error: { message: "must not have the same item twice" },
    validate: (wanted: boolean, items: readonly unknown[]) => !wanted || areUnique(items, effort),
  });
}

/** By their canonical text: to compare each with each takes hours for what fits into 1 MiB. */
function areUnique(items: readonly unknown[], effort: Effort): boolean {
  const seen = new Set<string>();
  for (const item of items) {
    const text = canonicalJson(item);
    // Lists within lists are spelled once for each of them.
    effort.spend(1 + text.length / 64);
    seen.add(text);
  }
  return seen.size === items.length;
}

/** As Unicode, which the standard wants; else as what escapes more than Unicode's patterns may, which people write. */
function patternOf(source: string): RegExp {
  try {
    return new RegExp(source, "u");
  } catch {
    return new RegExp(source);
  }
}

/** The first problems, each with its path. What a schema says may be in it, what a value says may not. */
function describe(errors: readonly ErrorObject[] | null | undefined): string {
  const all = errors ?? [];
  const problems = all.slice(0, MAX_PROBLEMS).map((error) => {
    const place = error.instancePath === "" ? "" : `${cutMessage(error.instancePath, 200)} `;
    return `${place}${wordsOf(error)}`;
  });
  const more = all.length > MAX_PROBLEMS ? `; and ${all.length - MAX_PROBLEMS} more` : "";
  return cutMessage([...new Set(problems)].join("; ") + more || "is not valid", MAX_MESSAGE_BYTES);
}

function wordsOf({ keyword, params, message }: ErrorObject): string {
  if (keyword === "enum") return `must be one of ${cutMessage(JSON.stringify(params.allowedValues), 400)}`;
  if (keyword === "const") return `must be ${cutMessage(JSON.stringify(params.allowedValue), 400)}`;
  if (keyword === "additionalProperties" || keyword === "unevaluatedProperties") {
    const name: unknown = params.additionalProperty ?? params.unevaluatedProperty;
    return `must not have the property ${cutMessage(JSON.stringify(name), 100)}`;
  }
  return message ?? "is not valid";
}
