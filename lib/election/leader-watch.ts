import type { Agenda, Entry } from '../core/agenda.js';
import type { Locks } from '../core/locks.js';
import type { LeaderInfo } from './candidate.js';

interface LeaderWatchParts {
  readonly election: string;
  readonly locks: Locks;
  readonly agenda: Agenda;
}

/** Looks come a third of the lease apart, or up to a twelfth more. */
const LOOK_AFTER = 1 / 3;
const SPREAD = 1 / 12;
/** Looks within this part of the lease go together. */
const TOGETHER_WITHIN = 1 / 64;

/** Tells when another leads. It asks the store for that only while somebody listens. */
export class LeaderWatch {
  readonly #parts: LeaderWatchParts;
  /** The newest term that we know of. */
  #known = 0n;
  #next: Entry | undefined;

  constructor(parts: LeaderWatchParts) {
    this.#parts = parts;
  }

  /** Asks now and then, until it is stopped. */
  start(leaseMs: number, ask: () => Promise<LeaderInfo | null>): void {
    const { agenda, locks } = this.#parts;
    const stepMs = leaseMs * TOGETHER_WITHIN;
    const atMs = locks.clock.monotonicMs() + leaseMs * (LOOK_AFTER + Math.random() * SPREAD);
    const run = () => {
      this.start(leaseMs, ask);
      if (locks.events.isHeard('leader-changed')) void this.#look(ask);
    };
    this.#next = agenda.add({ atMs: Math.ceil(atMs / stepMs) * stepMs, run });
  }

  stop(): void {
    if (this.#next) this.#parts.agenda.remove(this.#next);
    this.#next = undefined;
  }

  /** Of two answers that overtook each other, the larger term is the newer. */
  learn(term: bigint, leader: string): void {
    if (term <= this.#known) return;
    this.#known = term;
    const { locks, election } = this.#parts;
    locks.events.emit('leader-changed', { election, term, leader });
  }

  async #look(ask: () => Promise<LeaderInfo | null>): Promise<void> {
    // While the store is down there is no news.
    const found = await ask().catch(() => null);
    if (found && this.#next) this.learn(found.term, found.instance);
  }
}
