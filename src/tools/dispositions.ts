/**
 * What happens to a call that only a person can answer. A closed set, decided here alone, from what the harness can and
 * what the dispatch asks for.
 */
import type { HarnessCapabilities } from "../harness/port.ts";

/** The longest that a turn waits for a person. */
export const MAX_HOLD_SECONDS = 86_400;

export type Disposition =
  /** The call gets a result that ends the turn; the answer comes with a later dispatch. */
  | "acknowledge"
  /** The call stays open until it is answered, up to a limit; then it is acknowledged. */
  | "hold"
  /** The harness parks by itself: it gets no answer, and ends the turn. */
  | "native";

export interface DispositionOrder {
  /** 0: the turn does not wait. */
  readonly holdMs: number;
}

/** Throws for a harness that can have no tools: such a run is refused before. */
export function chooseDisposition(
  clientTools: HarnessCapabilities["clientTools"],
  { holdMs }: DispositionOrder,
): Disposition {
  switch (clientTools) {
    case "shim":
      return holdMs > 0 ? "hold" : "acknowledge";
    case "native":
      return "native";
    case "none":
      throw new Error("a harness without client tools was given some");
  }
}
