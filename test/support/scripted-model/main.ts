/** The scripted model as a program: prints `{"url"}` on one line, and runs until it is told to stop. */
import { startScriptedModel } from "./server.ts";

const model = await startScriptedModel({ port: Number(process.env.SCRIPTED_MODEL_PORT ?? 0) });
console.log(JSON.stringify({ url: model.url }));
for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.once(signal, () => void model.stop().finally(() => process.exit(0)));
}
