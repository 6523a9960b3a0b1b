import { Events, type LockEventListeners } from '../../lib/core/events.js';
import { lockStoreKey } from '../../lib/core/store-key.js';
import { Locks } from '../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../lib/core/options.js';
import { Callers } from './callers.js';
import type { Random } from '../support/random.js';
import { SimConnection, type NetworkFaults } from './sim-connection.js';
import { SimProcess } from './sim-process.js';
import { SimStore, type StoreKind } from './sim-store.js';
import { Timeline } from './timeline.js';
import { SimEventLoop } from './sim-event-loop.js';
import { InvariantChecker } from './invariant-checker.js';

/** What is the same all through a schedule. */
export interface ScheduleConfig {
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
export interface SimInstance {
  readonly process: SimProcess;
  readonly callers: Callers;
  readonly connection: SimConnection;
  readonly locks: Locks;
}

export type Log = (line: string) => void;

interface SimulationOptions {
  readonly seed: number;
  readonly random: Random;
  readonly config: ScheduleConfig;
  readonly networkFaults: NetworkFaults;
  readonly log: Log | undefined;
}

/** A shutdown waits for no more of them at once. */
const MAX_REAL_TURNS = 3;
const NAMESPACE = 'lock';
const LOGGED_EVENTS = [
  'acquired',
  'timeout',
  'released',
  'renewal-failed',
  'lost',
  'unavailable',
  'shutdown',
] as const;

/** Processes with locks on one store, in time that the schedule lets pass. */
export class Simulation {
  readonly random: Random;
  readonly config: ScheduleConfig;
  readonly networkFaults: NetworkFaults;
  readonly timeline = new Timeline();
  readonly store: SimStore;
  readonly checker: InvariantChecker;
  readonly instances: SimInstance[] = [];
  readonly log: Log;
  /** How much has happened. */
  events = 0;
  readonly #isLogged: boolean;
  readonly #eventLoop: SimEventLoop;
  readonly #instanceOf = new Map<string, SimInstance>();

  constructor({ seed, random, config, networkFaults, log }: SimulationOptions) {
    this.random = random;
    this.config = config;
    this.networkFaults = networkFaults;
    this.#isLogged = log !== undefined;
    this.log = log
      ? (line) => log(`${this.timeline.nowMs.toFixed(3).padStart(12)}  ${line}`)
      : () => undefined;
    this.#eventLoop = new SimEventLoop(seed);
    this.store = new SimStore(config.kind, this.timeline, (notice, holder) => {
      const notified = holder === undefined ? this.instances : [this.#instanceOf.get(holder)];
      for (const instance of notified) instance?.connection.notify(notice);
    });
    this.checker = new InvariantChecker({
      timeline: this.timeline,
      store: this.store,
      storeKeyOf: this.storeKeyOf,
      isCalm: config.isCalm,
      areWatched: config.areWatched,
    });
  }

  readonly storeKeyOf = (key: string): string => lockStoreKey(NAMESPACE, key);

  /** Whose holder it is. */
  instanceOf(holder: string): SimInstance | undefined {
    return this.#instanceOf.get(holder);
  }

  start(): void {
    const { random, config, networkFaults, timeline, store, checker } = this;
    const name = `P${this.instances.length + 1}`;
    const process = new SimProcess(name, timeline, random);
    const connection = new SimConnection({
      ...{ process, store, timeline, random, networkFaults, observer: checker },
      longestDelayMs: config.longestDelayMs,
      onRequest: (holder) => this.#instanceOf.set(holder, instance),
      ...(this.#isLogged && { log: (line: string) => this.log(`${name} ${line}`) }),
    });
    const source = { namespace: NAMESPACE, instance: name };
    const events = new Events(
      { ...source, backend: connection.name, module: 'default' },
      this.#isLogged ? this.#listeners(name) : {},
    );
    const locks = new Locks({ backend: connection, ...source, defaults: BUILT_IN_LOCK_OPTIONS, events });
    const hasLanes = connection.lanes !== undefined;
    const callers = new Callers({ process, locks, timeline, random, checker, config, hasLanes });
    const instance: SimInstance = { process, callers, connection, locks };
    this.instances.push(instance);
  }

  /** Lets time pass, with all that happens in it. */
  advance(ms: number): Promise<void> {
    const untilMs = this.timeline.nowMs + ms;
    return new Promise((resolve, reject) => {
      const step = () => {
        try {
          if (this.#step(untilMs)) this.#eventLoop.settle(step);
          else resolve();
        } catch (cause) {
          reject(new Error('the schedule broke off', { cause }));
        }
      };
      this.#eventLoop.settle(step);
    });
  }

  /** `node:timers/promises` brings no turn but those of the real event loop. */
  awaitRealTurns(): void {
    this.#eventLoop.realTurns = MAX_REAL_TURNS;
  }

  /** Gives the world back to Node. */
  end(): void {
    this.#eventLoop.end();
  }

  /** Looks at what came of the last event, and lets the next one happen. Says whether there was one until then. */
  #step(untilMs: number): boolean {
    for (;;) {
      this.events += 1;
      this.checker.checkAll();
      const run = this.checker.findings.length > 0 ? undefined : this.timeline.next(untilMs);
      if (!run) return false;
      const isNothing = run() === false;
      // Who looks at his locks may start something by that.
      if (!isNothing || this.config.areWatched) return true;
    }
  }

  #listeners(name: string): LockEventListeners {
    const listeners = LOGGED_EVENTS.map((event) => [
      event,
      ({ namespace: _, instance: __, ...message }: Record<string, unknown>) => {
        this.log(
          `${name} ${event} ${Object.entries(message)
            .map(([key, value]) => `${key}=${String(value)}`)
            .join(' ')}`,
        );
      },
    ]);
    return Object.fromEntries(listeners) as LockEventListeners;
  }
}
