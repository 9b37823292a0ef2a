/** The bearer token: compared in constant time, and replaceable while the daemon runs. */
import type { Clock } from "../clock/port.ts";
import { Secret } from "../secret.ts";

/** A caller that did not hear of the new token yet is not turned away at once. */
const OLD_TOKEN_MS = 60_000;
/** Each is compared at every request. */
const MAX_OLD_TOKENS = 16;

export class TokenAuth {
  #current: Secret;
  #previous: readonly { readonly token: Secret; readonly until: number }[] = [];
  /** Digests of equal length are compared, so that neither length nor content shows in the time. */
  readonly #key = crypto.getRandomValues(new Uint8Array(32));

  constructor(
    token: Secret,
    private readonly clock: Clock,
  ) {
    this.#current = token;
  }

  /** From now on `token` counts; each that was replaced does for a minute more. */
  replace(token: string): void {
    if (this.#matches(this.#current, token)) return;
    const now = this.clock.monotonic();
    const still = this.#previous.filter(({ until }) => now < until);
    this.#previous = [...still, { token: this.#current, until: now + OLD_TOKEN_MS }].slice(-MAX_OLD_TOKENS);
    this.#current = new Secret(token);
  }

  /** True for an `Authorization` header that carries a token that counts. */
  allows(header: string | null): boolean {
    const presented = /^Bearer +(\S+)$/i.exec(header ?? "")?.[1] ?? "";
    const now = this.clock.monotonic();
    let allowed = this.#matches(this.#current, presented);
    for (const { token, until } of this.#previous) {
      if (now < until && this.#matches(token, presented)) allowed = true;
    }
    return allowed;
  }

  /** Shows that this daemon knows the token: hex HMAC-SHA256 under it of the boot id, a newline and the nonce. */
  prove(bootId: string, nonce: string): string {
    return new Bun.CryptoHasher("sha256", this.#current.reveal()).update(`${bootId}\n${nonce}`).digest("hex");
  }

  #matches(token: Secret, presented: string): boolean {
    const digest = (text: string): Buffer => new Bun.CryptoHasher("sha256", this.#key).update(text).digest();
    return crypto.timingSafeEqual(digest(token.reveal()), digest(presented));
  }
}
