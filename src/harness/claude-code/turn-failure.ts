/**
 * How a turn fails: one of the harness's codes and a sentence for whoever reads the outcome. Messages name what to
 * mend, never a credential, a header or a path of the pod.
 */
import type { HarnessErrorCode } from "../../errors.ts";
import type { Usage } from "../../frames/frame.ts";

export class TurnFailure extends Error {
  constructor(
    readonly code: HarnessErrorCode,
    message: string,
    readonly usage?: Usage,
  ) {
    super(message);
    this.name = "TurnFailure";
  }
}
