import type { LinkedListNode } from '../linked-list.js';
import type { TimerEntry } from '../timer-wheel.js';

/** The next renewal and the end of one grant, as one entry of the timer wheel. */
export class RenewalTimer<GrantType> implements TimerEntry {
  readonly grant: GrantType;
  /**
   * The monotonic time of the next renewal. `Infinity` while a renewal is in flight, or if the grant is not renewed.
   */
  renewAtMs: number;
  /** Failed renewals since the last one that succeeded. */
  failures = 0;
  /** The earlier of the next renewal and the end of validity. */
  atMs = 0;
  wheelNode: LinkedListNode<TimerEntry> | undefined;
  /** Its place in the renewer's list. */
  listNode: LinkedListNode<RenewalTimer<GrantType>> | undefined;
  readonly #onDue: (timer: RenewalTimer<GrantType>) => void;

  constructor(grant: GrantType, renewAtMs: number, onDue: (timer: RenewalTimer<GrantType>) => void) {
    this.grant = grant;
    this.renewAtMs = renewAtMs;
    this.#onDue = onDue;
  }

  run(): void {
    this.#onDue(this);
  }
}
