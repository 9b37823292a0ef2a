/** Of what the agent can cause as often as it likes the first few are named in the log, and the rest is a number. */
const MAX_NAMED = 20;

export class FewNamed {
  #named = 0;
  #rest = 0;

  /** One more. True: it is to be named. */
  next(): boolean {
    if (this.#named === MAX_NAMED) {
      this.#rest++;
      return false;
    }
    this.#named++;
    return true;
  }

  /** How many were not named since the last look. */
  takeRest(): number {
    const rest = this.#rest;
    this.#rest = 0;
    return rest;
  }
}
