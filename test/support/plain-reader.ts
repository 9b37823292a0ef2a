/**
 * Dispatches a run and prints every line that it gets, keepalives as empty ones; a program of its own, so that it can
 * be started in another network namespace. Arguments: the daemon's address, its token, the dispatch's body.
 */
export {};

const [url = "", token = "", body = ""] = process.argv.slice(2);
const response = await fetch(`${url}/dispatch`, {
  method: "POST",
  headers: { authorization: `Bearer ${token}` },
  body,
});
const decoder = new TextDecoder();
for await (const piece of response.body ?? []) process.stdout.write(decoder.decode(piece as Uint8Array));
