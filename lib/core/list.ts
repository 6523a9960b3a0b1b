/** Where a value stands in a {@link List}, for who may want to take it out again. */
export class Spot<Value> {
  readonly value: Value;
  readonly #list: List<Value>;
  previous: Spot<Value> | undefined;
  next: Spot<Value> | undefined;

  constructor(value: Value, list: List<Value>) {
    this.value = value;
    this.#list = list;
    this.previous = list.last;
  }

  /** Takes the value out. Says whether it was still there. */
  leave(): boolean {
    return this.#list.remove(this);
  }
}

/**
 * Values in the order in which they came, any of which can leave in O(1).
 *
 * Not a `Set`: of one that is filled and emptied all the time, V8 leaves a trail of outgrown tables which keep what once
 * stood in them from the quick garbage collection, which costs a process with many locks much of its time.
 */
export class List<Value> {
  first: Spot<Value> | undefined;
  last: Spot<Value> | undefined;
  size = 0;

  add(value: Value): Spot<Value> {
    const spot = new Spot(value, this);
    if (this.last) this.last.next = spot;
    else this.first = spot;
    this.last = spot;
    this.size += 1;
    return spot;
  }

  remove(spot: Spot<Value>): boolean {
    const { previous, next } = spot;
    if (previous) previous.next = next;
    else if (this.first === spot) this.first = next;
    else return false;
    if (next) next.previous = previous;
    else this.last = previous;
    // Garbage that points to what came later would keep that as well.
    spot.previous = undefined;
    spot.next = undefined;
    this.size -= 1;
    return true;
  }

  /** Must not change meanwhile. */
  *[Symbol.iterator](): Iterator<Value> {
    for (let spot = this.first; spot; spot = spot.next) yield spot.value;
  }
}
