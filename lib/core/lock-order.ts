import { lockOrderError } from './error-factories.js';
import { templateOf } from './event-template.js';
import type { Events } from './events.js';
import { findLocksInContext, isInLockContext } from './lock-context.js';
import { type LockOrderEdge, type OrderedLock, LockOrderGraph } from './lock-order-graph.js';

/** What happens when locks are acquired in opposite orders. */
export type LockOrderMode = 'warn' | 'throw' | 'off';

interface LockOrderParts {
  readonly mode: Exclude<LockOrderMode, 'off'>;
  readonly events: Events;
  /** Stands for the locks of this module in lock contexts. */
  readonly locks: object;
}

/** A call that acquires locks. */
interface OrderedCall {
  readonly label?: string | undefined;
  readonly waitMs: number;
}

/** Enough for the calls that acquired the outer locks. Frames of this package are among them. */
const MAX_FRAMES = 30;

/** Detects locks of one module that are acquired in opposite orders, so that their callers could wait for each other. */
export class LockOrder {
  readonly #parts: LockOrderParts;
  readonly #graph = new LockOrderGraph();

  constructor(parts: LockOrderParts) {
    this.#parts = parts;
  }

  get edges(): readonly LockOrderEdge[] {
    return this.#graph.edges;
  }

  get isFull(): boolean {
    return this.#graph.isFull;
  }

  /**
   * Called before locks are requested that one call acquires together. A call that does not wait for them cannot be part of
   * a deadlock. The locks of runs and terms do not count: nobody waits for them while holding a lock.
   *
   * @throws LockConfigError in the mode `throw`, if the order is the opposite of an earlier one
   */
  check(keys: readonly string[], { label, waitMs }: OrderedCall): void {
    if (!isInLockContext() || waitMs === 0) return;
    const [wrong, added]: [LockOrderEdge[], LockOrderEdge[]] = [[], []];
    const heldLocks = this.#heldLocks();
    for (const wanted of orderedLocks(keys, label)) {
      for (const held of heldLocks) {
        const known = this.#graph.find(held, wanted);
        const edge = known ?? this.#add(held, wanted);
        if (!edge?.opposite) continue;
        // Copies: the error has the keys of this call, and the event gets more fields.
        wrong.push({ ...edge, heldKey: held.key, key: wanted.key });
        if (!known) added.push({ ...edge });
      }
    }
    // One event for each call.
    const [[inverted], [published]] = [byLength(wrong), byLength(added)];
    if (published) this.#parts.events.emit('order-inverted', published, { label });
    if (inverted && this.#parts.mode === 'throw') throw lockOrderError(inverted);
  }

  /** The innermost first. */
  #heldLocks(): OrderedLock[] {
    return findLocksInContext(this.#parts.locks)
      .filter(({ purpose, isHeld }) => purpose === 'lock' && isHeld)
      .flatMap(({ keys, label }) => orderedLocks(keys, label));
  }

  #add(held: OrderedLock, wanted: OrderedLock): LockOrderEdge | undefined {
    return this.#graph.isFull ? undefined : this.#graph.add(held, wanted, captureStack());
  }
}

/** A label of several keys is about all of them, so it does not say what kind of lock one of them is. */
const orderedLocks = (keys: readonly string[], label: string | undefined): OrderedLock[] =>
  keys.map((key) => ({ key, template: (keys.length === 1 && label) || templateOf(key) }));

/** The shortest circle first: it is the easiest to understand. */
const byLength = (edges: readonly LockOrderEdge[]): LockOrderEdge[] =>
  [...edges].sort((one, other) => lengthOf(one) - lengthOf(other));

const lengthOf = ({ opposite = [] }: LockOrderEdge) => opposite.length;

/** The stack of the call that is checked, without its first line, which names an error. */
function captureStack(): string {
  const { stackTraceLimit } = Error;
  // Error.prepareStackTrace of the application may return anything.
  const trace: { readonly stack?: unknown } = {};
  Error.stackTraceLimit = MAX_FRAMES;
  Error.captureStackTrace(trace, LockOrder.prototype.check);
  Error.stackTraceLimit = stackTraceLimit;
  const stack = String(trace.stack);
  return stack.slice(stack.indexOf('\n') + 1);
}
