/** Writes values in the encoding of ZooKeeper's protocol, which is called Jute. */
export class JuteWriter {
  readonly #parts: Buffer[] = [];

  int(value: number): this {
    const bytes = Buffer.allocUnsafe(4);
    bytes.writeInt32BE(value);
    return this.#add(bytes);
  }

  long(value: bigint): this {
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeBigInt64BE(value);
    return this.#add(bytes);
  }

  bool(value: boolean): this {
    return this.#add(Buffer.of(value ? 1 : 0));
  }

  bytes(value: Buffer): this {
    return this.int(value.length).#add(value);
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value));
  }

  /** Everything that was written, after its length. */
  toFrame(): Buffer {
    const length = this.#parts.reduce((sum, part) => sum + part.length, 0);
    const header = Buffer.allocUnsafe(4);
    header.writeInt32BE(length);
    return Buffer.concat([header, ...this.#parts], length + 4);
  }

  #add(part: Buffer): this {
    this.#parts.push(part);
    return this;
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
