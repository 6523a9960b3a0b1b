/** Where a value stands in a {@link LinkedList}, for who may want to take it out again. */
export class LinkedListNode<Value> {
  readonly value: Value;
  readonly #list: LinkedList<Value>;
  previous: LinkedListNode<Value> | undefined;
  next: LinkedListNode<Value> | undefined;

  constructor(value: Value, list: LinkedList<Value>) {
    this.value = value;
    this.#list = list;
    this.previous = list.last;
  }

  /** Takes the value out. Says whether it was still there. */
  remove(): boolean {
    return this.#list.remove(this);
  }
}

/**
 * Values in the order in which they came, any of which can leave in O(1).
 *
 * Not a `Set`: of one that is filled and emptied all the time, V8 leaves a trail of outgrown tables which keep what once
 * stood in them from the quick garbage collection, which costs a process with many locks much of its time.
 */
export class LinkedList<Value> {
  first: LinkedListNode<Value> | undefined;
  last: LinkedListNode<Value> | undefined;
  size = 0;

  add(value: Value): LinkedListNode<Value> {
    const node = new LinkedListNode(value, this);
    if (this.last) this.last.next = node;
    else this.first = node;
    this.last = node;
    this.size += 1;
    return node;
  }

  remove(node: LinkedListNode<Value>): boolean {
    const { previous, next } = node;
    if (previous) previous.next = next;
    else if (this.first === node) this.first = next;
    else return false;
    if (next) next.previous = previous;
    else this.last = previous;
    // Garbage that points to what came later would keep that as well.
    node.previous = undefined;
    node.next = undefined;
    this.size -= 1;
    return true;
  }

  /** Must not change meanwhile. */
  *[Symbol.iterator](): Iterator<Value> {
    for (let node = this.first; node; node = node.next) yield node.value;
  }
}
