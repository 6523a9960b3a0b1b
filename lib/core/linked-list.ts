/** One value of a {@link LinkedList}. Removes itself in O(1). */
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

  /** Removes the value. Returns whether it was still in the list. */
  remove(): boolean {
    return this.#list.remove(this);
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
    // A removed node that still points to later ones would keep them from the quick garbage collection.
    node.previous = undefined;
    node.next = undefined;
    this.size -= 1;
    return true;
  }

  /** The list must not change during the iteration. */
  *[Symbol.iterator](): Iterator<Value> {
    for (let node = this.first; node; node = node.next) yield node.value;
  }
}
