const LENGTH_BYTES = 4;
/** Most messages fit. */
const FIRST_CAPACITY = 256;

/** Writes values in the encoding of ZooKeeper's protocol, which is called Jute. */
export class JuteWriter {
  #bytes = Buffer.allocUnsafe(FIRST_CAPACITY);
  #length = LENGTH_BYTES;

  int(value: number): this {
    const at = this.#reserve(4);
    this.#bytes.writeInt32BE(value, at);
    return this;
  }

  long(value: bigint): this {
    const at = this.#reserve(8);
    this.#bytes.writeBigInt64BE(value, at);
    return this;
  }

  bool(value: boolean): this {
    const at = this.#reserve(1);
    this.#bytes.writeUInt8(value ? 1 : 0, at);
    return this;
  }

  bytes(value: Buffer): this {
    this.int(value.length);
    const at = this.#reserve(value.length);
    value.copy(this.#bytes, at);
    return this;
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value));
  }

  /** Everything that was written, after its length. */
  toFrame(): Buffer {
    this.#bytes.writeInt32BE(this.#length - LENGTH_BYTES);
    return this.#bytes.subarray(0, this.#length);
  }

  /** Makes room at the end, and returns where it begins. */
  #reserve(count: number): number {
    const at = this.#length;
    this.#length += count;
    if (this.#length > this.#bytes.length) {
      const written = this.#bytes;
      this.#bytes = Buffer.allocUnsafe(2 * this.#length);
      written.copy(this.#bytes, 0, 0, at);
    }
    return at;
  }
}

/** Reads values of one message, in the order in which they were written. */
export class JuteReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length;
  }

  int(): number {
    this.#at += 4;
    return this.#bytes.readInt32BE(this.#at - 4);
  }

  long(): bigint {
    this.#at += 8;
    return this.#bytes.readBigInt64BE(this.#at - 8);
  }

  bool(): boolean {
    this.#at += 1;
    return this.#bytes.readUInt8(this.#at - 1) !== 0;
  }

  bytes(): Buffer {
    // A missing value has the length -1.
    const length = Math.max(this.int(), 0);
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  text(): string {
    return this.bytes().toString();
  }

  texts(): string[] {
    return Array.from({ length: Math.max(this.int(), 0) }, () => this.text());
  }
}
