/**
 * Reads JSON where it lies, value by value, and makes nothing of what it passes over: 15 MB of `{}` are 5 million
 * objects otherwise. As strict as `JSON.parse`, and bounded: what goes beyond is refused, with its place. For UTF-8:
 * whether the bytes within a string are well-formed is not looked at.
 */
export interface JsonBounds {
  /** How many lists and objects may be within one another. */
  readonly depth: number;
  /** In any one object. */
  readonly keys: number;
  /** In all; lists, objects and keys count too. */
  readonly values: number;
}

/** It may be JSON, and there is too much of it. */
export class JsonRefusal extends Error {
  constructor(
    readonly path: string,
    readonly reason: string,
  ) {
    super(`${path}: ${reason}`);
  }
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const END = -1;

/** A path is for a person to read. */
const SHOWN_LEVELS = 8;
const SHOWN_KEY_CHARS = 64;
const SHORT_BYTES = 32;
/** Nobody asks for a longer key. */
const READ_KEY_BYTES = 128;

export class JsonScanner {
  /** Of the next byte. After `peek`, of the next one that is no blank. */
  at = 0;
  /** As many as have begun, keys included. */
  values = 0;
  #depth = 0;
  /** Of each open list or object: the byte that closes it, how much of it has begun, and where its newest key is. */
  readonly #closes: Uint8Array;
  readonly #counts: Int32Array;
  readonly #keys: Int32Array;
  #keyEnd = 0;
  readonly #short = new Array<{ readonly start: number; readonly end: number; readonly text: string }>(64);

  constructor(
    private readonly bytes: Buffer,
    private readonly bounds: JsonBounds,
  ) {
    this.#closes = new Uint8Array(bounds.depth);
    this.#counts = new Int32Array(bounds.depth);
    this.#keys = new Int32Array(bounds.depth);
  }

  /** The next byte that is no blank, and stays where it is; -1 at the end. */
  peek(): number {
    const { bytes } = this;
    for (; this.at < bytes.length; this.at++) {
      const byte = bytes[this.at] as number;
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return byte;
    }
    return END;
  }

  /** Throws when anything but blanks is left. */
  end(): void {
    if (this.peek() !== END) throw this.#bad();
  }

  /** Passes over one value. */
  skip(): void {
    const outer = this.#depth;
    do {
      while (this.#begin());
      while (this.#depth > outer && this.#closesHere());
    } while (this.#depth > outer);
  }

  /** The members of the object that is next. `take` reads the value, or passes over it. */
  eachMember(take: (key: string) => void): void {
    if (this.peek() !== OPEN_OBJECT) throw this.#bad();
    if (!this.#begin()) return;
    do take(this.#key());
    while (!this.#closesHere());
  }

  /** The elements of the list that is next. */
  eachElement(take: () => void): void {
    if (this.peek() !== OPEN_LIST) throw this.#bad();
    if (!this.#begin()) return;
    do take();
    while (!this.#closesHere());
  }

  /** The value that is next; undefined for a list or an object, which is passed over. */
  scalar(): unknown {
    const first = this.peek();
    const start = this.at;
    this.skip();
    if (first === OPEN_LIST || first === OPEN_OBJECT) return undefined;
    return first === QUOTE ? this.#text(start, this.at) : this.parse(start);
  }

  /** What lies between `start` and here, as a value. */
  parse(start: number, end = this.at): unknown {
    return JSON.parse(this.bytes.toString("utf8", start, end));
  }

  /** Begins a value. True when it is a list or an object with something in it, which is next. */
  #begin(): boolean {
    const byte = this.peek();
    this.#count();
    switch (byte) {
      case OPEN_OBJECT:
        return this.#enter(CLOSE_OBJECT);
      case OPEN_LIST:
        return this.#enter(CLOSE_LIST);
      case QUOTE:
        this.#string();
        return false;
      case 0x74:
        return this.#word("true");
      case 0x66:
        return this.#word("false");
      case 0x6e:
        return this.#word("null");
      default:
        this.#number();
        return false;
    }
  }

  #count(): void {
    const { values } = this.bounds;
    if (++this.values > values) throw this.#refusal(0, `more than ${values} keys and values`);
  }

  #enter(close: number): boolean {
    this.at++;
    const level = this.#depth;
    if (level === this.bounds.depth) throw this.#refusal(level, `more than ${level} levels of lists and objects`);
    if (this.peek() === close) {
      this.at++;
      return false;
    }
    this.#closes[level] = close;
    this.#counts[level] = 0;
    this.#depth++;
    this.#next();
    return true;
  }

  /** Behind a value: true when this is the end of what it is in, false when another one follows. */
  #closesHere(): boolean {
    const byte = this.peek();
    this.at++;
    if (byte === this.#closes[this.#depth - 1]) {
      this.#depth--;
      return true;
    }
    if (byte !== COMMA) throw this.#bad();
    this.#next();
    return false;
  }

  /** On to the value of the next element or member. */
  #next(): void {
    const level = this.#depth - 1;
    const count = (this.#counts[level] as number) + 1;
    this.#counts[level] = count;
    if (this.#closes[level] === CLOSE_LIST) return;
    if (count > this.bounds.keys) throw this.#refusal(level, `more than ${this.bounds.keys} keys`);
    if (this.peek() !== QUOTE) throw this.#bad();
    this.#count();
    this.#keys[level] = this.at;
    this.#string();
    this.#keyEnd = this.at;
    if (this.peek() !== COLON) throw this.#bad();
    this.at++;
  }

  /** The key of the member that has just begun; of one that is too long to be asked for, nothing. */
  #key(): string {
    const start = this.#keys[this.#depth - 1] as number;
    if (this.#keyEnd - start > READ_KEY_BYTES) return "";
    return this.#text(start, this.#keyEnd);
  }

  /** Of a string between its quotes. The short ones are the same few, a million times: they are made once. */
  #text(start: number, end: number): string {
    const { bytes } = this;
    const length = end - start - 2;
    if (length > SHORT_BYTES) return this.parse(start, end) as string;
    const slot = (length * 31 + (bytes[start + 1] as number) * 7 + (bytes[end - 2] as number)) % this.#short.length;
    const known = this.#short[slot];
    if (known && known.end - known.start - 2 === length && this.#isSame(known.start, start, length + 2))
      return known.text;
    const text = this.parse(start, end) as string;
    this.#short[slot] = { start, end, text };
    return text;
  }

  #isSame(one: number, other: number, length: number): boolean {
    const { bytes } = this;
    for (let at = 1; at < length; at++) if (bytes[one + at] !== bytes[other + at]) return false;
    return true;
  }

  #string(): void {
    const { bytes } = this;
    let at = this.at + 1;
    for (; ; at++) {
      if (at >= bytes.length) throw this.#bad();
      const byte = bytes[at] as number;
      if (byte === QUOTE) break;
      if (byte < 0x20) throw this.#bad();
      if (byte === BACKSLASH) at += this.#escapeLength(at + 1);
    }
    this.at = at + 1;
  }

  #escapeLength(at: number): number {
    switch (this.bytes[at]) {
      case QUOTE:
      case BACKSLASH:
      case 0x2f: // "/"
      case 0x62: // "b"
      case 0x66: // "f"
      case 0x6e: // "n"
      case 0x72: // "r"
      case 0x74: // "t"
        return 1;
      case 0x75: // "u"
        for (let digit = at + 1; digit <= at + 4; digit++) if (!isHex(this.bytes[digit])) throw this.#bad();
        return 5;
      default:
        throw this.#bad();
    }
  }

  #word(word: string): false {
    for (let index = 0; index < word.length; index++) {
      if (this.bytes[this.at++] !== word.charCodeAt(index)) throw this.#bad();
    }
    return false;
  }

  #number(): void {
    const { bytes } = this;
    if (bytes[this.at] === MINUS) this.at++;
    if (bytes[this.at] === ZERO) this.at++;
    else this.#digits();
    if (bytes[this.at] === POINT) {
      this.at++;
      this.#digits();
    }
    if (bytes[this.at] !== 0x65 && bytes[this.at] !== 0x45) return;
    this.at++;
    if (bytes[this.at] === 0x2b || bytes[this.at] === MINUS) this.at++;
    this.#digits();
  }

  #digits(): void {
    const start = this.at;
    for (; this.at < this.bytes.length; this.at++) {
      const byte = this.bytes[this.at] as number;
      if (byte < ZERO || byte > NINE) break;
    }
    if (this.at === start) throw this.#bad();
  }

  #bad(): SyntaxError {
    return new SyntaxError("not JSON");
  }

  /** Of what is open at `level`, or begins there. */
  #refusal(level: number, reason: string): JsonRefusal {
    const names: string[] = [];
    for (let each = 0; each < Math.min(level, SHOWN_LEVELS); each++) names.push(this.#name(each));
    return new JsonRefusal(names.join(".") || "body", `has ${reason}`);
  }

  #name(level: number): string {
    if (this.#closes[level] === CLOSE_LIST) return String((this.#counts[level] as number) - 1);
    const start = this.at;
    this.at = this.#keys[level] as number;
    this.#string();
    const name = this.parse(this.#keys[level] as number) as string;
    this.at = start;
    return name.length > SHOWN_KEY_CHARS ? `${name.slice(0, SHOWN_KEY_CHARS)}…` : name;
  }
}

function isHex(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  return (byte >= ZERO && byte <= NINE) || (byte >= 0x41 && byte <= 0x46) || (byte >= 0x61 && byte <= 0x66);
}
