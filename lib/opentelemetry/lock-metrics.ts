import type { Meter, Observable, ObservableCallback, ObservableResult } from '@opentelemetry/api';
import type { LockEventListeners, LockEventMessage } from '../core/events.js';
import type { AcquireTrace } from '../core/tracing-channels.js';
import { type Series, SeriesRegistry } from './series.js';
import { subscribeToEvents, subscribeToTraces } from '../core/event-subscriptions.js';

/** In seconds. The default boundaries of OpenTelemetry are meant for milliseconds. */
const LOCK_SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const JOB_SECONDS = [0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 1_800, 3_600, 7_200];

/** Records events of locks, jobs and leaders with this meter. Returns a function that stops it. */
export function recordMetrics(meter: Meter): () => void {
  // Locks with many different keys must not use up the series of jobs and elections.
  const [locks, jobs, elections] = [new SeriesRegistry(), new SeriesRegistry(), new SeriesRegistry()];
  const acquisitions = new Set<AcquireTrace>();
  const stops = [
    subscribeToEvents({
      ...createLockListeners(createInstruments(meter, locks), locks),
      ...createJobListeners(createInstruments(meter, jobs), jobs),
      ...createElectionListeners(elections),
    }),
    subscribeToTraces<AcquireTrace>('acquire', {
      start: (trace) => acquisitions.add(trace),
      asyncEnd: (trace) => acquisitions.delete(trace),
    }),
    ...observe(meter, { locks, elections, acquisitions }),
  ];
  return () => stops.forEach((stop) => stop());
}

/** Makes the instruments whose values come from events. */
function createInstruments(meter: Meter, series: SeriesRegistry) {
  return {
    histogram: (name: string, description: string, boundaries: number[]) =>
      meter.createHistogram(name, {
        ...{ description, unit: 's' },
        advice: { explicitBucketBoundaries: boundaries },
      }),
    counter(name: string, description: string, unit: string) {
      const counted = meter.createCounter(name, { description, unit });
      const count = (message: Parameters<SeriesRegistry['find']>[0], more?: Record<string, string>): void => {
        const { attributes } = series.find(message);
        counted.add(1, more ? { ...attributes, ...more } : attributes);
      };
      /** A counter that begins with 1 has not increased: `increase()` of Prometheus would miss the first fault. */
      const begin = ({ attributes }: Series) => counted.add(0, attributes);
      return Object.assign(count, { begin });
    },
  };
}

type Instruments = ReturnType<typeof createInstruments>;

function createLockListeners(
  { histogram, counter }: Instruments,
  series: SeriesRegistry,
): LockEventListeners {
  const held = new HeldLockCounter(series);
  const wait = histogram('lock.wait', 'How long callers waited for locks that they got', LOCK_SECONDS);
  const hold = histogram('lock.hold', 'How long locks were held until they were released', LOCK_SECONDS);
  const countLoss = counter('lock.losses', 'Locks that were lost while they were held', '{loss}');
  const countUnavailable = counter('lock.unavailable', 'Requests that the store did not answer', '{request}');
  const countTimeout = counter('lock.timeouts', 'Callers that did not get a lock in time', '{timeout}');
  const countRetry = counter('lock.renewal_failures', 'Renewals that failed and are retried', '{renewal}');
  series.onAdded = (added) => {
    for (const { begin } of [countLoss, countUnavailable, countTimeout, countRetry]) begin(added);
  };
  return {
    acquired: (message) => {
      if (message.purpose !== 'lock') return;
      wait.record(message.waitedMs / 1_000, held.add(message).attributes);
    },
    released: (message) => {
      const found = held.remove(message);
      if (found) hold.record(message.heldMs / 1_000, found.attributes);
    },
    lost: (message) => {
      held.remove(message);
      countLoss(message);
    },
    unavailable: (message) => {
      const { fencingToken } = message;
      if (fencingToken !== undefined) held.remove({ ...message, fencingToken });
      countUnavailable(message);
    },
    shutdown: (message) => message.phase === 'done' && held.removeAll(message),
    timeout: countTimeout,
    'order-inverted': counter('lock.order_inversions', 'Pairs of locks in opposite orders', '{inversion}'),
    'renewal-failed': countRetry,
  };
}

function createJobListeners({ histogram, counter }: Instruments, series: SeriesRegistry): LockEventListeners {
  const duration = histogram('job.duration', 'How long runs of jobs took', JOB_SECONDS);
  const countRun = counter('job.runs', 'Runs of jobs, by outcome', '{run}');
  const countSkip = counter('job.skips', 'Ticks that were skipped here, by reason', '{tick}');
  return {
    'tick-ended': (message) => {
      const { durationMs, outcome } = message;
      duration.record(durationMs / 1_000, series.find(message).attributes);
      countRun(message, { outcome });
    },
    'tick-skipped': (message) => countSkip(message, { reason: message.reason }),
  };
}

const createElectionListeners = (series: SeriesRegistry): LockEventListeners => ({
  elected: (message) => {
    const found = series.find(message);
    found.terms = (found.terms ?? 0) + 1;
  },
  revoked: (message) => {
    const found = series.find(message);
    if (found.terms) found.terms -= 1;
  },
});

interface Observed {
  readonly locks: SeriesRegistry;
  readonly elections: SeriesRegistry;
  readonly acquisitions: ReadonlySet<AcquireTrace>;
}

/** The numbers that are read when metrics are collected, which costs the locks themselves nothing. */
function observe(meter: Meter, { locks, elections, acquisitions }: Observed) {
  const upDown = (name: string, description: string, unit: string) =>
    meter.createObservableUpDownCounter(name, { description, unit });
  const onCollect = (observable: Observable, callback: ObservableCallback) => {
    observable.addCallback(callback);
    return () => observable.removeCallback(callback);
  };
  const observeEach = (
    series: SeriesRegistry,
    result: ObservableResult,
    valueOf: (one: Series) => number | undefined,
  ) => {
    for (const one of series) {
      const value = valueOf(one);
      if (value !== undefined) result.observe(value, one.attributes);
    }
  };
  return [
    onCollect(upDown('lock.held', 'Locks that this process holds', '{lock}'), (result) =>
      observeEach(locks, result, ({ held }) => held),
    ),
    onCollect(
      upDown('lock.waiting', 'Callers of this process that wait for a taken key', '{caller}'),
      (result) => {
        for (const one of locks) if (one.waiting !== undefined) one.waiting = 0;
        for (const trace of acquisitions) {
          if (!trace.isContended) continue;
          const one = locks.find(trace);
          one.waiting = (one.waiting ?? 0) + 1;
        }
        observeEach(locks, result, ({ waiting }) => waiting);
      },
    ),
    onCollect(
      meter.createObservableGauge('election.leader', {
        ...{ description: '1 while this process leads, 0 after its last term', unit: '1' },
      }),
      (result) => observeEach(elections, result, ({ terms }) => terms && Math.min(terms, 1)),
    ),
  ];
}

type HeldMessage = LockEventMessage<'acquired'>;
type HeldSource = Pick<HeldMessage, 'namespace' | 'module' | 'instance'>;
type HeldName = HeldSource & Pick<HeldMessage, 'key' | 'template' | 'fencingToken' | 'permit'>;

interface HeldLock {
  readonly name: HeldName;
  readonly series: Series;
}

/** Counts held locks by their fencing tokens and permits: a lock that was acquired before does not count, nor does its release. */
class HeldLockCounter {
  readonly #series: SeriesRegistry;
  /** By key, because a text of all fields would have to be made for each event. Most keys have one lock at a time. */
  readonly #held = new Map<string, HeldLock[]>();

  constructor(series: SeriesRegistry) {
    this.#series = series;
  }

  add(message: HeldMessage): Series {
    const series = this.#series.find(message);
    series.held = (series.held ?? 0) + 1;
    const others = this.#held.get(message.key);
    const added = { name: message, series };
    if (others) others.push(added);
    else this.#held.set(message.key, [added]);
    return series;
  }

  /** Returns the series of the lock, if it was counted. */
  remove(message: HeldName): Series | undefined {
    const { fencingToken, permit, key, template } = message;
    return this.#removeAt(
      key,
      ({ name }) =>
        name.fencingToken === fencingToken &&
        name.permit === permit &&
        // The readers of a process share a grant, and so its token.
        name.template === template &&
        isSameSource(name, message),
    );
  }

  /** The module has shut down. Locks that it left do not end with an event. */
  removeAll(message: HeldSource): void {
    const isOfModule = ({ name }: HeldLock) => isSameSource(name, message);
    for (const key of this.#held.keys()) while (this.#removeAt(key, isOfModule));
  }

  #removeAt(key: string, isMeant: (lock: HeldLock) => boolean): Series | undefined {
    const locks = this.#held.get(key) ?? [];
    const index = locks.findIndex(isMeant);
    const found = locks[index]?.series;
    if (!found) return undefined;
    if (locks.length === 1) this.#held.delete(key);
    else locks.splice(index, 1);
    found.held = (found.held ?? 0) - 1;
    return found;
  }
}

const isSameSource = (one: HeldSource, other: HeldSource) =>
  one.module === other.module && one.namespace === other.namespace && one.instance === other.instance;
