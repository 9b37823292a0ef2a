/** The rows as a table for people. */
import type { Row, Spread, Unit, Verdict } from "./measure.ts";

const DIGITS: Readonly<Record<Unit, number>> = { ms: 1, "MB/s": 0, MiB: 0, "frames/s": 0, x: 2 };

export function formatTable(rows: readonly Row[]): string {
  const cells = [
    ["bench", "what", "unit", "product", "floor", "against", "bar", ""],
    ...rows.map(({ bench, name, unit, product, floor, verdict }) => [
      bench,
      name,
      unit,
      formatSpread(product, unit),
      floor ? formatSpread(floor, unit) : "",
      verdict ? formatValue(verdict, unit) : "",
      verdict?.bar ?? "",
      verdict ? (verdict.met ? "met" : "MISSED") : "",
    ]),
  ];
  const widths = (cells[0] ?? []).map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  return cells
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

function formatSpread({ median, min, max, count }: Spread, unit: Unit): string {
  const [middle, low, high] = [median, min, max].map((value) => value.toFixed(DIGITS[unit]));
  return count === 1 ? `${middle}` : `${middle} (${low} to ${high} of ${count})`;
}

function formatValue({ compare, value }: Verdict, unit: Unit): string {
  if (compare === "ratio") return `${value.toFixed(2)} ×`;
  const text = value.toFixed(DIGITS[unit]);
  return compare === "difference" && value >= 0 ? `+${text}` : text;
}
