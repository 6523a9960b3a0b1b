import { Events, type LockEventListeners } from '../../lib/core/events.js';
import { lockStoreKey } from '../../lib/core/key.js';
import { Locks } from '../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../lib/core/options.js';
import { Callers } from './callers.js';
import type { Random } from '../random.js';
import { SimLink, type Troubles } from './sim-link.js';
import { SimProcess } from './sim-process.js';
import { SimStore, type StoreKind } from './sim-store.js';
import { Timeline } from './timeline.js';
import { Turns } from './turns.js';
import { Witness } from './witness.js';

/** What is the same all through a schedule. */
export interface Terms {
  readonly kind: StoreKind;
  readonly keys: readonly string[];
  readonly leasesMs: readonly number[];
  readonly waitsMs: readonly number[];
  readonly longestDelayMs: number;
  /** How many of the locks are renewed, as a part of 1. */
  readonly renewed: number;
  /** Longest time that a lock is held for, in leases. */
  readonly longestHold: number;
  /** Callers look at their locks all the time. */
  readonly areWatched: boolean;
  /** Nothing goes wrong. */
  readonly isCalm: boolean;
}

/** A process with locks, and how it reaches the store. */
export interface Member {
  readonly process: SimProcess;
  readonly callers: Callers;
  readonly link: SimLink;
  readonly locks: Locks;
}

export type Log = (line: string) => void;

interface WorldParts {
  readonly seed: number;
  readonly random: Random;
  readonly terms: Terms;
  readonly troubles: Troubles;
  readonly log: Log | undefined;
}

/** A shutdown waits for no more of them at once. */
const MOST_REAL_TURNS = 3;
const NAMESPACE = 'lock';
const LOGGED = [
  'acquired',
  'timeout',
  'released',
  'renewal-failed',
  'lost',
  'unavailable',
  'shutdown',
] as const;

/** Processes with locks on one store, in time that the schedule lets pass. */
export class World {
  readonly random: Random;
  readonly terms: Terms;
  readonly troubles: Troubles;
  readonly timeline = new Timeline();
  readonly store: SimStore;
  readonly witness: Witness;
  readonly members: Member[] = [];
  readonly log: Log;
  /** How much has happened. */
  events = 0;
  readonly #isLogged: boolean;
  readonly #turns: Turns;
  readonly #memberOf = new Map<string, Member>();

  constructor({ seed, random, terms, troubles, log }: WorldParts) {
    this.random = random;
    this.terms = terms;
    this.troubles = troubles;
    this.#isLogged = log !== undefined;
    this.log = log
      ? (line) => log(`${this.timeline.nowMs.toFixed(3).padStart(12)}  ${line}`)
      : () => undefined;
    this.#turns = new Turns(seed);
    this.store = new SimStore(terms.kind, this.timeline, (freed, holder) => {
      const called = holder === undefined ? this.members : [this.#memberOf.get(holder)];
      for (const member of called) member?.link.call(freed);
    });
    this.witness = new Witness({
      timeline: this.timeline,
      store: this.store,
      storeKeyOf: this.storeKeyOf,
      isCalm: terms.isCalm,
      areWatched: terms.areWatched,
    });
  }

  readonly storeKeyOf = (key: string): string => lockStoreKey(NAMESPACE, key);

  /** Whose holder it is. */
  memberOf(holder: string): Member | undefined {
    return this.#memberOf.get(holder);
  }

  start(): void {
    const { random, terms, troubles, timeline, store, witness } = this;
    const name = `P${this.members.length + 1}`;
    const process = new SimProcess(name, timeline, random);
    const link = new SimLink({
      ...{ process, store, timeline, random, troubles, witness },
      longestDelayMs: terms.longestDelayMs,
      onAsked: (holder) => this.#memberOf.set(holder, member),
      ...(this.#isLogged && { log: (line: string) => this.log(`${name} ${line}`) }),
    });
    const source = { namespace: NAMESPACE, instance: name };
    const events = new Events(source, this.#isLogged ? this.#listeners(name) : {});
    const locks = new Locks({ backend: link, ...source, defaults: BUILT_IN_LOCK_OPTIONS, events });
    const callers = new Callers({ process, locks, timeline, random, witness, terms });
    const member: Member = { process, callers, link, locks };
    this.members.push(member);
  }

  /** Lets time pass, with all that happens in it. */
  pass(ms: number): Promise<void> {
    const untilMs = this.timeline.nowMs + ms;
    return new Promise((resolve, reject) => {
      const goOn = () => {
        try {
          if (this.#goOn(untilMs)) this.#turns.settle(goOn);
          else resolve();
        } catch (cause) {
          reject(new Error('the schedule broke off', { cause }));
        }
      };
      this.#turns.settle(goOn);
    });
  }

  /** `node:timers/promises` brings no turn but those of the real event loop. */
  awaitRealTurns(): void {
    this.#turns.real = MOST_REAL_TURNS;
  }

  /** Gives the world back to Node. */
  end(): void {
    this.#turns.end();
  }

  /** Looks at what came of the last event, and lets the next one happen. Says whether there was one until then. */
  #goOn(untilMs: number): boolean {
    for (;;) {
      this.events += 1;
      this.witness.look();
      const run = this.witness.findings.length > 0 ? undefined : this.timeline.next(untilMs);
      if (!run) return false;
      const isNothing = run() === false;
      // Who looks at his locks may start something by that.
      if (!isNothing || this.terms.areWatched) return true;
    }
  }

  #listeners(name: string): LockEventListeners {
    const told = LOGGED.map((event) => [
      event,
      ({ namespace: _, instance: __, ...message }: Record<string, unknown>) => {
        this.log(
          `${name} ${event} ${Object.entries(message)
            .map(([key, value]) => `${key}=${String(value)}`)
            .join(' ')}`,
        );
      },
    ]);
    return Object.fromEntries(told) as LockEventListeners;
  }
}
