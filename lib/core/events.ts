import { channel } from 'node:diagnostics_channel';

/** Why a tick did not run here. */
export type TickSkipReason = 'taken' | 'overlap' | 'stale' | 'not-leader' | 'unavailable' | 'shutdown';

/** Why a leader leads no more. */
export type RevokeReason = 'lost' | 'resigned' | 'shutdown';

/** What each event tells. */
export interface LockEvents {
  /** A lock was granted to us. */
  acquired: { key: string; fencingToken: bigint; waitedMs: number };
  /** An asker found the key taken, and waits. Published once an acquisition. */
  contended: { key: string; remainingMs: number };
  /** An asker waited for `waitMs` in vain. */
  timeout: { key: string; waitedMs: number };
  released: { key: string; fencingToken: bigint };
  renewed: { key: string; fencingToken: bigint };
  /** An early warning: the lock is still ours for `remainingMs`, and the renewal is tried again. */
  'renewal-failed': {
    key: string;
    fencingToken: bigint;
    failures: number;
    remainingMs: number;
    cause: unknown;
  };
  /** The event loop was blocked for `lateMs`, which came close to the loss of `held` locks like one of `leaseMs`. */
  stalled: { lateMs: number; leaseMs: number; held: number };
  /** The lock stopped being ours while it was held, or the store says so when it is given back at the end of work. */
  lost: { key: string; fencingToken: bigint; error: Error };
  /**
   * The lock was acquired in an open transaction of the application, or its work leaves one open in which it has used a fenced
   * helper. A lock from `acquire()` is published when it is released before that transaction has ended. COMMIT comes after the release, so the next holder reads old values. Logged once.
   */
  'transaction-open': { key: string; fencingToken: bigint };
  /** The store did not answer. */
  unavailable: { key: string; operation: 'acquire' | 'release' | 'claim-tick' | 'note'; cause: unknown };
  /**
   * Of the servers that must agree on a lock one (`host:port`) has no say for a while now: `voting` of them still do, and
   * `needed` must.
   */
  'server-away': { server: string; fault: string; voting: number; needed: number; servers: number };
  /** It has one again. */
  'server-back': { server: string; voting: number; needed: number; servers: number };
  'tick-claimed': { job: string; tick: Date; fencingToken: bigint; attempt: number };
  'tick-skipped': { job: string; tick: Date; reason: TickSkipReason };
  /**
   * A run no longer renews its lease, which ends in `remainingMs`: its process has probably died. Published once a run by
   * each replica that sees it. With `isBlocking` ticks of the job are skipped until then; it is false where each tick has a
   * lock of its own (`overlap: 'allow'`, `deployKey`).
   */
  'run-overdue': {
    job: string;
    instance: string;
    since: Date;
    fencingToken: bigint;
    remainingMs: number;
    isBlocking: boolean;
  };
  /** This process leads. The number of its term is the fencing token. */
  elected: { election: string; term: bigint };
  /** It leads no more, from this moment; the work of its term may still be ending. */
  revoked: { election: string; term: bigint; reason: RevokeReason };
  /**
   * Another leads than the last one that this candidate knew of. Who waits looks at the store for it at each third of the
   * lease, and only while somebody listens.
   */
  'leader-changed': { election: string; term: bigint; leader: string };
  /** A method under `@OnElected` or `@OnRevoked` threw, which ends no term. */
  'leader-failed': { election: string; term: bigint; method: string; error: unknown };
  /** These still run a whole lease after the term was revoked, or at the end of shutdown. Its lease lapses. */
  'leader-overran': { election: string; term: bigint; methods: readonly string[] };
  /** Shutdown began (`draining`), or ended with `left` locks that were not given back and lapse by themselves. */
  shutdown: { phase: 'draining' | 'done'; left: number };
}

export type LockEventName = keyof LockEvents;

/** Where an event comes from. */
interface EventSource {
  readonly namespace: string;
  readonly instance: string;
}

/** A message on the channel `nestjs-distributed-lock:<event>` of `node:diagnostics_channel`. */
export type LockEventMessage<Name extends LockEventName> = LockEvents[Name] & EventSource;

export type LockEventListeners = {
  readonly [Name in LockEventName]?: (message: LockEventMessage<Name>) => void;
};

/** Publishes what happens: on the process-wide channels, and to the listeners of one module. */
export class Events {
  readonly #source: EventSource;
  readonly #listeners: LockEventListeners;

  constructor(source: EventSource, listeners: LockEventListeners = {}) {
    this.#source = source;
    this.#listeners = listeners;
  }

  /** Whether anybody listens. */
  hasListeners(name: LockEventName): boolean {
    return this.#listeners[name] !== undefined || channels[name].hasSubscribers;
  }

  emit<Name extends LockEventName>(name: Name, event: LockEvents[Name]): void {
    const listener = this.#listeners[name];
    const subscribed = channels[name];
    if (!listener && !subscribed.hasSubscribers) return;
    const message = { ...this.#source, ...event };
    try {
      listener?.(message);
    } catch (error) {
      // As a channel does it: who listens badly must not keep others from their locks.
      process.nextTick(() => {
        throw error;
      });
    }
    subscribed.publish(message);
  }
}

const channelOf = (event: LockEventName) => channel(`nestjs-distributed-lock:${event}`);

const channels = {
  acquired: channelOf('acquired'),
  contended: channelOf('contended'),
  timeout: channelOf('timeout'),
  released: channelOf('released'),
  renewed: channelOf('renewed'),
  'renewal-failed': channelOf('renewal-failed'),
  stalled: channelOf('stalled'),
  lost: channelOf('lost'),
  'transaction-open': channelOf('transaction-open'),
  unavailable: channelOf('unavailable'),
  'server-away': channelOf('server-away'),
  'server-back': channelOf('server-back'),
  'tick-claimed': channelOf('tick-claimed'),
  'tick-skipped': channelOf('tick-skipped'),
  'run-overdue': channelOf('run-overdue'),
  elected: channelOf('elected'),
  revoked: channelOf('revoked'),
  'leader-changed': channelOf('leader-changed'),
  'leader-failed': channelOf('leader-failed'),
  'leader-overran': channelOf('leader-overran'),
  shutdown: channelOf('shutdown'),
} as const satisfies Record<LockEventName, unknown>;
