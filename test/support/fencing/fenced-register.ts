/** Something that is written to under locks, and refuses whoever comes with an older fencing token than the newest seen. */
export class FencedRegister {
  #newest = 0n;

  /** Says whether the write was accepted. */
  write(fencingToken: bigint): boolean {
    if (fencingToken < this.#newest) return false;
    this.#newest = fencingToken;
    return true;
  }
}
