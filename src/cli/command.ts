/** A subcommand: its arguments, its help text out of the same table, and what it does. */
import { type ParseArgsOptionDescriptor, parseArgs } from "node:util";
import { EXIT } from "./exit-codes.ts";
import type { CliIo, CommandModule } from "./io.ts";
import { UsageError } from "./io.ts";

export interface Option extends ParseArgsOptionDescriptor {
  /** What stands for the value in the help text. */
  readonly value?: string;
  readonly about: string;
}

export type Options = Readonly<Record<string, Option>>;

type ValueOf<O extends Option> = O["type"] extends "boolean" ? boolean : string;
export type Values<T extends Options> = {
  readonly [K in keyof T]?: T[K]["multiple"] extends true ? ValueOf<T[K]>[] : ValueOf<T[K]>;
};

export interface CommandSpec<T extends Options> {
  /** As it is typed, for example `run [options] PROMPT…`. */
  readonly usage: string;
  readonly about: readonly string[];
  readonly options: T;
  /** More of the help text: a heading, and its lines. */
  readonly sections: Readonly<Record<string, readonly string[]>>;
  /** How many positional arguments there may be. */
  readonly positionals: { readonly min: number; readonly max: number; readonly name: string };
  readonly run: (values: Values<T>, positionals: readonly string[], io: CliIo) => Promise<number>;
}

const COMMON = {
  help: { type: "boolean", short: "h", about: "this text" },
  version: { type: "boolean", about: "the version" },
} as const satisfies Options;

export function defineCommand<const T extends Options>(spec: CommandSpec<T>): CommandModule {
  const options = { ...spec.options, ...COMMON };
  return {
    async main(argv, io) {
      const { values, positionals } = parse(argv, options);
      if (values.help) {
        await io.stdout.write(helpOf(spec, options));
        return EXIT.ok;
      }
      if (values.version) {
        await io.stdout.write(`${io.version}\n`);
        return EXIT.ok;
      }
      const { min, max, name } = spec.positionals;
      if (positionals.length < min) throw new UsageError(`${name} is missing`);
      if (positionals.length > max) throw new UsageError(`too many arguments: ${positionals.slice(max).join(" ")}`);
      return spec.run(values as Values<T>, positionals, io);
    },
  };
}

/** A whole number of at least `min`, or undefined when it was not given. */
export function wholeNumber(text: string | undefined, name: string, min = 0): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,15}$/.test(text) || Number(text) < min) {
    throw new UsageError(`--${name} must be a whole number${min > 0 ? ` of at least ${min}` : ""}, not "${text}"`);
  }
  return Number(text);
}

function parse(argv: readonly string[], options: Options) {
  try {
    return parseArgs({ args: [...argv], options: { ...options }, allowPositionals: true, strict: true });
  } catch (thrown) {
    // parseArgs throws for what was typed; its first sentence says what.
    throw new UsageError(thrown instanceof Error ? (thrown.message.split(". ")[0] ?? "") : String(thrown));
  }
}

function helpOf(spec: Pick<CommandSpec<Options>, "usage" | "about" | "sections">, options: Options): string {
  const rows = Object.entries(options).map(([name, { short, value, about }]) => {
    const flags = `${short ? `-${short}, ` : ""}--${name}${value ? ` ${value}` : ""}`;
    return [flags, about] as const;
  });
  const width = Math.max(...rows.map(([flags]) => flags.length));
  const lines = [`Usage: dispatchd ${spec.usage}`, "", ...spec.about, "", "Options:"];
  for (const [flags, about] of rows) lines.push(`  ${flags.padEnd(width)}  ${about}`);
  for (const [title, section] of Object.entries(spec.sections)) {
    lines.push("", `${title}:`, ...section.map((line) => `  ${line}`));
  }
  return `${lines.join("\n")}\n`;
}
