import type { LinkedListNode } from '../linked-list.js';
import type { TimerEntry } from '../timer-wheel.js';

/** What its keeper has planned for a grant. */
export class RenewalTimer<GrantType> implements TimerEntry {
  readonly grant: GrantType;
  /** `Infinity` while a renewal is under way, or if there shall be none. */
  renewAtMs: number;
  failures = 0;
  /** When to look next. */
  atMs = 0;
  wheelNode: LinkedListNode<TimerEntry> | undefined;
  /** Where it stands among all that is kept. */
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
