import { Asker } from './asker.js';
import type { Clock } from './clock.js';
import { LockConfigError } from './errors.js';
import type { Events } from './events.js';
import type { Attempt, Grants, NotGranted } from './grants.js';
import { Lease } from './lease.js';
import { NoAnswerInTime } from './no-answer-in-time.js';
import { timedOut, unavailable } from './refusals.js';

/** What somebody who stands in line asks for, again and again. */
export type Wish = Omit<Attempt, 'holder'>;

interface WaitingLineParts {
  readonly clock: Clock;
  readonly events: Events;
  readonly grants: Grants;
}

/** Pauses between two looks at a taken key grow from the first to the second. */
const SHORTEST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 250;
/** While the store is away. */
const LONGEST_OUTAGE_PAUSE_MS = 1_000;

/** Those of this process who wait for keys that others hold. */
export class WaitingLine {
  readonly #parts: WaitingLineParts;
  readonly #askers = new Map<string, Set<Asker>>();

  constructor(parts: WaitingLineParts) {
    this.#parts = parts;
  }

  /** How many wait for the key. */
  countAt(storeKey: string): number {
    return this.#askers.get(storeKey)?.size ?? 0;
  }

  /** The key may be free: whoever waits for it asks at once. */
  wake(storeKey: string): void {
    for (const asker of this.#askers.get(storeKey) ?? []) asker.wake();
  }

  /** Asks until the key is granted, the time is over, or a signal ends the wait with its reason. */
  async stand(wish: Wish, signals: readonly AbortSignal[]): Promise<Lease> {
    using asker = new Asker({ clock: this.#parts.clock, waitMs: wish.waitMs, signals });
    const { storeKey } = wish;
    const askers = this.#askers.get(storeKey) ?? new Set();
    this.#askers.set(storeKey, askers.add(asker));
    try {
      return await this.#askAgainAndAgain(wish, asker);
    } finally {
      askers.delete(asker);
      if (askers.size === 0) this.#askers.delete(storeKey);
    }
  }

  /** Asks once, for who does not stand in line. */
  async askOnce(wish: Wish, signals: readonly AbortSignal[]): Promise<Lease | NotGranted> {
    const { clock, grants } = this.#parts;
    using asker = new Asker({ clock, waitMs: 0, signals });
    const answer = await this.#ask({ ...wish, waitMs: 0, holder: grants.newHolder() }, asker);
    return answer instanceof Lease ? this.#granted(answer, asker) : answer;
  }

  async #askAgainAndAgain(wish: Wish, asker: Asker): Promise<Lease> {
    const { events, grants } = this.#parts;
    const { key } = wish;
    let holder = grants.newHolder();
    let [isInLine, wasTaken] = [false, false];
    for (let tries = 1; ; tries += 1) {
      const answer = await this.#ask({ ...wish, holder, waitMs: asker.leftMs }, asker);
      if (answer instanceof Lease) return this.#granted(answer, asker);
      if (answer.kind === 'unknown') {
        // Who stands in line stays there while the store comes back; who comes to a closed door hears of it at once.
        isInLine ||= answer.cause instanceof NoAnswerInTime;
        const isOver = !isInLine || asker.leftMs === 0 || answer.cause instanceof LockConfigError;
        if (isOver) throw unavailable(key, answer.cause);
        // The old holder is being given back, and may be for a while.
        if (answer.wasSent !== false) holder = grants.newHolder();
      } else {
        isInLine = true;
        if (!wasTaken && answer.kind === 'taken')
          events.emit('contended', { key, remainingMs: answer.remainingMs });
        wasTaken = true;
        if (asker.leftMs === 0) throw this.#inVain(key, asker);
      }
      await asker.pause(Math.min(pauseMs(tries, answer), asker.leftMs));
    }
  }

  async #ask(attempt: Attempt, asker: Asker): Promise<Lease | NotGranted> {
    asker.throwIfLeaving();
    return asker.whileHere(this.#parts.grants.ask(attempt), (answer) => {
      if (answer instanceof Lease) void answer.giveBack();
    });
  }

  #granted(lease: Lease, { waitedMs }: Asker): Lease {
    const { key, fencingToken } = lease;
    this.#parts.events.emit('acquired', { key, fencingToken, waitedMs });
    return lease;
  }

  #inVain(key: string, { waitedMs }: Asker): Error {
    this.#parts.events.emit('timeout', { key, waitedMs });
    return timedOut(key, waitedMs);
  }
}

/** Random, so that many who wait do not knock in step; at the end of the other's lease it is worth a look. */
function pauseMs(tries: number, answer: NotGranted): number {
  const longestMs = answer.kind === 'unknown' ? LONGEST_OUTAGE_PAUSE_MS : LONGEST_PAUSE_MS;
  const randomMs = Math.min(SHORTEST_PAUSE_MS * 2 ** (tries - 1), longestMs) * (0.5 + Math.random() / 2);
  // A lost race is answered with no rest at all: that is no reason to hurry.
  const isOverSoon = answer.kind === 'taken' && answer.remainingMs > 0;
  return isOverSoon ? Math.min(randomMs, answer.remainingMs + 1) : randomMs;
}
