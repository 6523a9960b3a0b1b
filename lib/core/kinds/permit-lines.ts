import type { Clock } from '../clock.js';
import { timeoutError, unavailableError } from '../error-factories.js';
import { MAX_PERMITS } from '../store-key.js';
import { type LinkedListNode, LinkedList } from '../linked-list.js';
import { withTimeout } from '../requests/store-timeout.js';
import type { CompositeAcquisition, CompositeCall } from './composite-acquisition.js';
import type { SlotRace } from './slot-race.js';

/** A caller that waits in line. */
interface Place {
  readonly admit: () => void;
}

interface Caller {
  readonly call: CompositeCall;
  readonly acquisition: CompositeAcquisition;
  readonly race: SlotRace;
}

/** The callers of this process for the permits of one key. */
interface Line {
  /** How many ask the store for a permit, or wait in the queues of all permits. */
  racing: number;
  readonly waiting: LinkedList<Place>;
}

/**
 * Lets a limited number of callers of this process ask for the permits of a key. The others wait in line here, first come,
 * first served: a caller that asks has a place in the queue of each permit, so a burst of callers would have callers times
 * permits places. With fewer callers in the queues, a process could hand over its permits less often without the store.
 */
export class PermitLines {
  readonly #lines = new Map<string, Line>();
  readonly #clock: Clock;
  readonly #stopping: AbortSignal;
  readonly #maxRacing: number;

  constructor(clock: Clock, stopping: AbortSignal, maxRacing = MAX_PERMITS) {
    this.#clock = clock;
    this.#maxRacing = maxRacing;
    this.#stopping = stopping;
  }

  /** How many callers wait in line for a permit of the key. */
  countWaiters(baseKey: string): number {
    return this.#lines.get(baseKey)?.waiting.size ?? 0;
  }

  /**
   * Runs the step that acquires a permit, when it is the turn of this caller.
   *
   * @throws LockTimeoutError after `waitMs`, or LockUnavailableError if the store does not answer those that ask; the reason
   *   of the signal, or of the shutdown
   */
  async run<T>(baseKey: string, caller: Caller, step: () => Promise<T>): Promise<T> {
    const line = this.#lineOf(baseKey);
    if (line.racing < this.#maxRacing && !line.waiting.first) line.racing += 1;
    else {
      caller.acquisition.onContended(0);
      await this.#waitInLine(line, { baseKey, ...caller });
    }
    try {
      return await step();
    } finally {
      this.#leave(baseKey, line);
    }
  }

  async #waitInLine(
    line: Line,
    { baseKey, call, acquisition, race }: Caller & { readonly baseKey: string },
  ): Promise<void> {
    let place: LinkedListNode<Place> | undefined;
    let onStopping = (): void => undefined;
    const admitted = new Promise<void>((admit, reject) => {
      place = line.waiting.add({ admit });
      const fail: (reason: unknown) => void = reject;
      onStopping = () => fail(this.#stopping.reason);
    });
    this.#stopping.addEventListener('abort', onStopping);
    try {
      const leftMs = call.waitMs - acquisition.waitedMs;
      const isAdmitted = withTimeout(this.#clock, leftMs, admitted, { awaited: true });
      if (await acquisition.untilEnded(isAdmitted)) return;
      const { outage } = race;
      throw outage === undefined
        ? timeoutError(call.key, acquisition.waitedMs, 0)
        : unavailableError(call.key, outage);
    } catch (error) {
      // If it was admitted in this turn of the event loop, its turn passes to the next.
      if (!place?.remove()) this.#leave(baseKey, line);
      place?.value.admit(); // Ends the timer.
      throw error;
    } finally {
      this.#stopping.removeEventListener('abort', onStopping);
    }
  }

  #lineOf(baseKey: string): Line {
    let line = this.#lines.get(baseKey);
    if (!line) {
      line = { racing: 0, waiting: new LinkedList() };
      this.#lines.set(baseKey, line);
    }
    return line;
  }

  /** A caller has asked: the next one in line may. */
  #leave(baseKey: string, line: Line): void {
    line.racing -= 1;
    for (let next = line.waiting.first; next && line.racing < this.#maxRacing; next = line.waiting.first) {
      next.remove();
      line.racing += 1;
      next.value.admit();
    }
    if (line.racing === 0) this.#lines.delete(baseKey);
  }
}
