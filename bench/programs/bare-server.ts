/** The floor of a cold start: a compiled Bun server that answers /health and does nothing else. */
Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.env.PORT),
  fetch: () => Response.json({ status: "ok" }),
});
