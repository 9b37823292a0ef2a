/** Reads one response as fast as it comes: `read-stream.ts ASK_JSON`; prints what came as one line of JSON. */
import { exchange } from "../http.ts";

console.log(JSON.stringify(await exchange(JSON.parse(process.argv[2] ?? ""))));
