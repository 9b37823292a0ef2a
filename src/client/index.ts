/** `dispatchd/client`: what a control plane imports. Runs on Node 20 and on Bun, and depends on nothing but them. */
export { type AttachOptions, type Client, type ClientOptions, createClient, type DispatchOptions } from "./client.ts";
export {
  DispatchdError,
  ProofError,
  ProtocolError,
  type RefusalCode,
  RefusedError,
  RunGoneError,
  SupersededError,
  UnreachableError,
} from "./errors.ts";
export type { Patience, Started } from "./follow-run.ts";
export { type HealthProof, verifyHealthProof } from "./health-proof.ts";
export type { Ending, RunFacts, RunResult } from "./result.ts";
export type { Run } from "./run.ts";
export type { Fetch, TokenSource } from "./transport.ts";
export type * from "./wire.ts";
