/** Lines as an agent's transcript has them: half of it is told again and again, half is new. */
export function transcript(bytes: number): string {
  const lines: string[] = [];
  for (let size = 0; size < bytes; ) {
    const words = Array.from({ length: 40 }, () => Math.random().toString(36).slice(2)).join(" ");
    const line = `${JSON.stringify({ uuid: crypto.randomUUID(), type: "assistant", cwd: "/app/repo", text: words })}\n`;
    lines.push(line);
    size += line.length;
  }
  return lines.join("");
}
