/** `dispatchd/client`: what a control plane imports. Runs on Node 20 and on Bun, and depends on nothing but them. */
export { answer, approve, cancel, deny, type InterruptRef } from "./answers.ts";
export {
  type AttachOptions,
  type Client,
  type ClientOptions,
  createClient,
  type DispatchOptions,
  type ResumeOptions,
} from "./client.ts";
export { frameText } from "./connection.ts";
export {
  AnswersError,
  DispatchdError,
  EndedError,
  ProofError,
  ProtocolError,
  type RefusalCode,
  RefusedError,
  RunGoneError,
  StaleError,
  SupersededError,
  UnreachableError,
} from "./errors.ts";
export type { Patience, Started } from "./follow-run.ts";
export { type HealthProof, verifyHealthProof } from "./health-proof.ts";
export type { Ending, RunFacts, RunResult } from "./result.ts";
export type { Suspended } from "./resume.ts";
export type { Run, RunResumeOptions } from "./run.ts";
export type { Fetch, TokenSource } from "./transport.ts";
export type * from "./wire.ts";
