/**
 * The floor of throughput and latency: a Bun server that starts a program and hands its stdout to the response, with no
 * frames, no log, no second reader. The program is the JSON array in COPY_CMD.
 */
const command = JSON.parse(process.env.COPY_CMD ?? "[]") as string[];

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch(request, self) {
    if (new URL(request.url).pathname === "/health") return Response.json({ status: "ok" });
    self.timeout(request, 0);
    const child = Bun.spawn({ cmd: command, stdin: "ignore", stdout: "pipe", stderr: "ignore" });
    return new Response(child.stdout);
  },
});
console.log(JSON.stringify({ port: server.port }));
