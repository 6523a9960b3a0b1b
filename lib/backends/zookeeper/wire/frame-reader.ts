const HEADER_LENGTH = 4;
/** A longer message is none of ZooKeeper's: the peer speaks another protocol, such as TLS. */
const MAX_FRAME_LENGTH = 64 * 1024 * 1024;

/** Splits what arrives into messages. Each begins with its length. */
export class FrameReader {
  readonly #onFrame: (frame: Buffer) => void;
  #parts: Buffer[] = [];
  #length = 0;

  constructor(onFrame: (frame: Buffer) => void) {
    this.#onFrame = onFrame;
  }

  /** Returns whether what has arrived can be a message of ZooKeeper. */
  add(bytes: Buffer): boolean {
    this.#parts.push(bytes);
    this.#length += bytes.length;
    for (;;) {
      if (this.#length < HEADER_LENGTH) return true;
      const frameLength = this.#peek(HEADER_LENGTH).readInt32BE(0);
      if (frameLength < 0 || frameLength > MAX_FRAME_LENGTH) return false;
      const end = HEADER_LENGTH + frameLength;
      if (this.#length < end) return true;
      const all = this.#peek(end);
      this.#parts = [all.subarray(end)];
      this.#length -= end;
      this.#onFrame(all.subarray(HEADER_LENGTH, end));
    }
  }

  /** All that has arrived, if its first `length` bytes are in several parts. Each part is copied at most once. */
  #peek(length: number): Buffer {
    const [first] = this.#parts;
    if (first && first.length >= length) return first;
    const all = Buffer.concat(this.#parts, this.#length);
    this.#parts = [all];
    return all;
  }
}
