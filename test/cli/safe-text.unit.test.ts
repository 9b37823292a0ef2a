/** What a model or a tool says must not drive the terminal. */
import { describe, expect, test } from "bun:test";
import { SafeText, safeLine, safeText } from "../../src/cli/safe-text.ts";

const HOSTILE: [string, string, string][] = [
  ["colour", "a\u001b[31mred\u001b[0mb", "aredb"],
  ["cursor and clear", "a\u001b[2J\u001b[1;1Hb", "ab"],
  ["private mode", "a\u001b[?1049hb", "ab"],
  ["title by bell", "a\u001b]0;owned\u0007b", "ab"],
  ["title by terminator", "a\u001b]0;owned\u001b\\b", "ab"],
  ["link", "\u001b]8;;http://evil\u001b\\text\u001b]8;;\u001b\\", "text"],
  ["clipboard", "a\u001b]52;c;ZXZpbA==\u0007b", "ab"],
  ["device control", "a\u001bP1$tx\u001b\\b", "ab"],
  ["privacy message", "a\u001b^x\u001b\\b", "ab"],
  ["two-byte", "a\u001bcb\u001b7", "ab"],
  ["intermediate", "a\u001b(Bb", "ab"],
  ["one-byte control", "a\u009b31mb", "ab"],
  ["one-byte string", "a\u009d0;t\u009cb", "ab"],
  ["controls", "a\u0000\u0007\u0008\u000b\u000c\u007f\u0085b", "ab"],
  ["carriage return", "safe\rEVIL", "safeEVIL"],
  ["line ends", "a\r\nb\tc\n", "a\nb\tc\n"],
  ["direction", "a\u202eb\u2066c\u200f", "abc"],
  ["lone surrogate", "a\ud800b", "ab"],
  ["plain", "é 🙂 \u2028 日本", "é 🙂 \u2028 日本"],
];

describe("safe text", () => {
  test.each(HOSTILE)("%s", (_name, text, expected) => {
    expect(safeText(text)).toBe(expected);
  });

  test.each(HOSTILE)("%s, cut at every place", (_name, text, expected) => {
    const chars = [...text];
    for (let at = 0; at <= chars.length; at++) {
      const safe = new SafeText();
      expect(safe.push(chars.slice(0, at).join("")) + safe.push(chars.slice(at).join(""))).toBe(expected);
    }
  });

  test("a sequence without an end does not swallow what follows", () => {
    expect(safeText("a\u001b]0;never ended\nnext line")).toBe("a\nnext line");
    expect(safeText(`a\u001b]${"x".repeat(10_000)}end`)).toEndWith("end");
  });

  test("nothing that it lets through is a control character", () => {
    let seed = 1;
    for (let n = 0; n < 20_000; n++) {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      const alphabet = [
        "\u001b",
        "[",
        "]",
        "m",
        "\u0007",
        "\u009b",
        "\\",
        "P",
        "a",
        ";",
        "\n",
        "\u0090",
        "\u202e",
        "(",
        "\u009c",
      ];
      const text = Array.from({ length: 6 }, (_, at) => alphabet[(seed >> at) % alphabet.length]).join("");
      // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it is about
      expect(safeText(text)).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e]/);
    }
  });

  test("a line is one line of a bounded width", () => {
    expect(safeLine(" a\n\n b\tc ", 20)).toBe("a b c");
    expect(safeLine("abcdef", 4)).toBe("abc…");
    expect(safeLine("🙂🙂🙂🙂", 3)).toBe("🙂🙂…");
    expect(safeLine("x".repeat(1 << 22), 10)).toBe("xxxxxxxxx…");
  });
});
