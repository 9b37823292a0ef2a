/** What is wrong with a resume. `dead`: asking again is the only way out. */
export interface Problem {
  readonly interruptId?: string;
  readonly reason: string;
  readonly dead: boolean;
}

/** The caller can send the same suspension again, correctly. */
export function correctable(reason: string, interruptId?: string): Problem {
  return { reason, dead: false, ...(interruptId === undefined ? {} : { interruptId }) };
}

export function dead(reason: string, interruptId?: string): Problem {
  return { reason, dead: true, ...(interruptId === undefined ? {} : { interruptId }) };
}
