/** The names in a relay directory, and how large what stands there may be. docs/relay.md is their documentation. */

export const TOOLS_FILE = "tools.json";
/** Of a request's file: what is larger is not read. */
export const MAX_REQUEST_BYTES = 1024 * 1024;
/** Of an answer's file. A result of 1 MiB, each byte of it escaped twice, fits. */
export const MAX_ANSWER_BYTES = 8 * 1024 * 1024;
export const MAX_TOOLS_BYTES = 32 * 1024 * 1024;
/** Of the folder itself, on ext4 about 28,000 names. A larger one is not listed: 100,000 hold the event loop up for 40 ms. */
export const MAX_LISTED_BYTES = 2 * 1024 * 1024;

const REQUEST = /^([0-9a-f]{32})\.req\.json$/;
const ANSWER = /^([0-9a-f]{32})\.res\.json$/;
/** All that the protocol puts there: what a sweep removes. */
const OURS = /^(?:[0-9a-f]{32}\.(?:req|res)\.json|\..*\.tmp|tools\.json)$/;

export function requestFile(name: string): string {
  return `${name}.req.json`;
}

export function answerFile(name: string): string {
  return `${name}.res.json`;
}

/** The name of the request that this file is; undefined for any other file. */
export function requestOf(file: string): string | undefined {
  return REQUEST.exec(file)?.[1];
}

/** The name of the request that this file is the answer of. */
export function answeredBy(file: string): string | undefined {
  return ANSWER.exec(file)?.[1];
}

export function isOfProtocol(file: string): boolean {
  return OURS.test(file);
}
