/** Prints `N passed, N failed, N skipped` from a JUnit report; exits with 1 when something failed or nothing ran. */
async function main(path: string): Promise<number> {
  const report = await Bun.file(path).text();
  const root = /<testsuites\b[^>]*>/.exec(report)?.[0] ?? "";
  const count = (name: string): number => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(root)?.[1] ?? 0);
  const tests = count("tests");
  const failed = count("failures") + count("errors");
  const skipped = count("skipped");
  console.log(`${tests - failed - skipped} passed, ${failed} failed, ${skipped} skipped`);
  return failed > 0 || tests === 0 ? 1 : 0;
}

process.exit(await main(process.argv[2] ?? ""));

export {};
