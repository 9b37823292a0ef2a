import { expect, test } from "bun:test";
import { systemClock } from "../../src/clock/system.ts";
import { createJsonLog } from "../../src/log/json-log.ts";
import type { LogLevel } from "../../src/log/port.ts";
import { LOG_LEVELS } from "../../src/log/port.ts";
import { Redactor } from "../../src/log/redact.ts";
import { Secret } from "../../src/secret.ts";

function collect(level: LogLevel = "debug") {
  const lines: string[] = [];
  const redactor = new Redactor();
  const clock = { ...systemClock, now: () => Date.UTC(2026, 0, 2, 3, 4, 5, 6) };
  const log = createJsonLog({ clock, redactor, level, write: (line) => lines.push(line) });
  return { log, lines, redactor };
}

test("one event a line: time, level, event, then the fields", () => {
  const { log, lines } = collect();
  log.info("run started", { run: "r\n1", bytes: 7 });
  expect(lines).toEqual([
    '{"time":"2026-01-02T03:04:05.006Z","level":"info","event":"run started","run":"r\\n1","bytes":7}\n',
  ]);
});

test("a child's lines carry its fields, and those of its own children too", () => {
  const { log, lines } = collect();
  log.child({ run: "r" }).child({ attempt: 2 }).warn("w", { attempt: 3 });
  expect(JSON.parse(lines[0] ?? "")).toMatchObject({ run: "r", attempt: 3, level: "warn" });
});

test("below the level nothing is written", () => {
  for (const [index, level] of LOG_LEVELS.entries()) {
    const { log, lines } = collect(level);
    for (const each of LOG_LEVELS) log[each]("e");
    expect(lines).toHaveLength(LOG_LEVELS.length - index);
  }
});

test("secrets are replaced, hidden values as well as values of their own type", () => {
  const { log, lines, redactor } = collect();
  redactor.hide(['hidden"value']);
  log.info("e", { a: 'hidden"value', b: new Secret("never-printed"), c: { d: ['x hidden"value y'] } });
  expect(JSON.parse(lines[0] ?? "")).toMatchObject({ a: "[secret]", b: "[secret]", c: { d: ["x [secret] y"] } });
});

test("a long line is cut to one that is still JSON, and still says what it is about", () => {
  const { log, lines, redactor } = collect();
  redactor.hide(["a-secret-value"]);
  log.child({ run: "r" }).info("e", { text: `${'"\\'.repeat(4000)}a-secret-value`, after: "a-secret-value" });
  const line = lines[0] ?? "";
  expect(JSON.parse(line)).toMatchObject({ event: "e", run: "r", level: "info", cut: expect.any(String) });
  expect(line.length).toBeLessThan(20_000);
  expect(line).not.toContain("a-secret-value");
});

test("a secret that reads like a name of ours changes no event and breaks no line", () => {
  const { log, lines, redactor } = collect();
  redactor.hide(["dispatch", '"level":"info"', "run started"]);
  log.info("run started", { why: "dispatch", said: '{"level":"info"}' });
  expect(JSON.parse(lines[0] ?? "")).toMatchObject({
    event: "run started",
    level: "info",
    why: "[secret]",
    said: "{[secret]}",
  });
});
