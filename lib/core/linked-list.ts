/** One value of a {@link LinkedList}. Removes itself in O(1). */
export class LinkedListNode<Value> {
  readonly value: Value;
  readonly #list: LinkedList<Value>;
  previous: LinkedListNode<Value> | undefined;
  next: LinkedListNode<Value> | undefined;

  /** Adds the value to the end of the list. */
  constructor(value: Value, list: LinkedList<Value>) {
    this.value = value;
    this.#list = list;
    this.previous = list.last;
    if (list.last) list.last.next = this;
    else list.first = this;
    list.last = this;
    list.size += 1;
  }

  /** Whether the value is in the list. */
  get isLinked(): boolean {
    return this.previous !== undefined || this.#list.first === this;
  }

  /** Removes the value. Returns whether it was still in the list. */
  remove(): boolean {
    if (!this.isLinked) return false;
    const list = this.#list;
    const { previous, next } = this;
    if (previous) previous.next = next;
    else list.first = next;
    if (next) next.previous = previous;
    else list.last = previous;
    // A removed node that still points to later ones would keep them from the quick garbage collection.
    this.previous = undefined;
    this.next = undefined;
    list.size -= 1;
    return true;
  }
}

/**
 * A doubly linked list: values in insertion order, each of which can be removed in O(1).
 *
 * Not a `Set`, because V8 replaces the table of a `Set` that is filled and emptied all the time again and again. The
 * old tables keep their former values alive past the quick garbage collection, which costs a process with many locks
 * much of its time.
 */
export class LinkedList<Value> {
  first: LinkedListNode<Value> | undefined;
  last: LinkedListNode<Value> | undefined;
  size = 0;

  add(value: Value): LinkedListNode<Value> {
    return new LinkedListNode(value, this);
  }

  /** The list must not change during the iteration. */
  *[Symbol.iterator](): Iterator<Value> {
    for (let node = this.first; node; node = node.next) yield node.value;
  }
}
