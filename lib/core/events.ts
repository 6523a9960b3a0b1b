import { channels } from './event-channels.js';
import { templateOf } from './event-template.js';
import type { LockOrderEdge } from './lock-order-graph.js';

/** What a lock is for: for the caller that acquired it, for one run of a job, or for one term of a leader. */
export type LockPurpose = 'lock' | 'run' | 'term';

/** How a run ended: see `CronRunOutcome`. */
export type RunEndOutcome = 'completed' | 'failed' | 'interrupted' | 'timed-out' | 'lost';

/** Why a tick did not run here. */
export type TickSkipReason =
  'taken' | 'overlap' | 'stale' | 'not-leader' | 'paused' | 'unavailable' | 'shutdown';

/** Why a term ended. */
export type RevokeReason = 'lost' | 'resigned' | 'shutdown';

/** The fields of every event of one key. */
interface KeyFields {
  readonly key: string;
  /**
   * The key without its values, to count by: the text of the decorator's key, or `label` of the options, else the key
   * with its digits and ids replaced. For a `run` and a `term` it is the key itself.
   */
  readonly template: string;
  readonly purpose: LockPurpose;
  /**
   * Which permit of the key it is about. Missing for a lock without permits, and before a permit is granted. Two permits
   * of a key may have the same fencing token.
   */
  readonly permit?: number;
}

/** The fields of every event of a job. The template of a job is its key. */
interface JobFields {
  readonly job: string;
  readonly template: string;
}

/** One run of a tick. */
interface RunFields extends JobFields {
  readonly tick: Date;
  readonly fencingToken: bigint;
  readonly attempt: number;
}

/** The fields of every event of an election. The template of an election is its name. */
interface ElectionFields {
  readonly election: string;
  readonly template: string;
}

/** The payload of each event. */
export interface LockEvents {
  /** A lock was granted to this process. */
  acquired: KeyFields & { fencingToken: bigint; waitedMs: number };
  /** The key is taken and the caller waits. Published once for each acquisition. */
  contended: KeyFields & { remainingMs: number };
  /** A caller did not get the lock within its `waitMs`. */
  timeout: KeyFields & { waitedMs: number };
  /**
   * The store has released the lock, or this process has handed it over to its next caller. The caller waited for
   * `waitedMs` and then had the lock for `heldMs`.
   */
  released: KeyFields & { fencingToken: bigint; heldMs: number; waitedMs: number };
  renewed: KeyFields & { fencingToken: bigint };
  /** A renewal failed. The lock is still held for `remainingMs`, and the renewal is retried. */
  'renewal-failed': KeyFields & {
    fencingToken: bigint;
    failures: number;
    remainingMs: number;
    cause: unknown;
  };
  /** The event loop was blocked for `lateMs`, at least a sixth of the lease `leaseMs`. The process held `held` locks. */
  stalled: { lateMs: number; leaseMs: number; held: number };
  /** The lock was lost while it was held, or the store reports the loss at the release after the work. */
  lost: KeyFields & { fencingToken: bigint; error: Error };
  /**
   * The lock is released before the COMMIT of an open transaction, so the next holder reads old values. Either the lock
   * was acquired in that transaction, or its work used a fenced helper in it and left it open. For a lock from
   * `acquire()` the event is published at the release. Logged once.
   */
  'transaction-open': KeyFields & { fencingToken: bigint };
  /** A call holds `heldKey` and asks for `key`, in the opposite order of earlier calls. Once for these templates. */
  'order-inverted': KeyFields & LockOrderEdge;
  /** Two calls of this process gave different permits for one key. Published for the first such key. */
  'permits-differ': KeyFields & { permits: number; otherPermits: number };
  /** The store did not reply. */
  unavailable: KeyFields & {
    operation: 'acquire' | 'release' | 'claim-tick' | 'read-ticks' | 'append-history';
    /** With `release`: the fencing token of the lock that could not be released. Its lease ends by itself. */
    fencingToken?: bigint;
    cause: unknown;
  };
  /**
   * A server of a quorum (`host:port`) has not counted for a second. `voting` of `servers` still count, and `needed` of
   * them must agree on a lock.
   */
  'server-away': { server: string; fault: string; voting: number; needed: number; servers: number };
  /** The server counts again. */
  'server-back': { server: string; voting: number; needed: number; servers: number };
  'tick-claimed': RunFields;
  'tick-skipped': JobFields & { tick: Date; reason: TickSkipReason };
  /** The method of the job is called. */
  'tick-started': RunFields;
  /** The run has ended, or was given up a lease after `maxRunMs`. */
  'tick-ended': RunFields & {
    outcome: RunEndOutcome;
    durationMs: number;
    /** What the run threw. */
    error: unknown;
  };
  /**
   * A run no longer renews its lease, which ends in `remainingMs`: its process has probably died. Each replica that
   * sees it publishes this once for each run. If `isBlocking` is true, ticks of the job are skipped until the lease
   * ends. It is false if each tick has its own lock (`overlap: 'allow'`, `deployKey`).
   */
  'run-overdue': JobFields & {
    instance: string;
    since: Date;
    fencingToken: bigint;
    remainingMs: number;
    isBlocking: boolean;
  };
  /** This process became leader. The number of its term is the fencing token. */
  elected: ElectionFields & { term: bigint };
  /** This process is no longer leader. The work of its term may still be running. */
  revoked: ElectionFields & { term: bigint; reason: RevokeReason };
  /**
   * A new leader was elected, this process or another one. Only while this event has a listener, waiting candidates ask
   * the store for the leader, after each third of the lease.
   */
  'leader-changed': ElectionFields & { term: bigint; leader: string };
  /** A method with `@OnElected` or `@OnRevoked` threw. That does not end the term. */
  'leader-failed': ElectionFields & { term: bigint; method: string; error: unknown };
  /** These methods still run a whole lease after the term was revoked, or at the end of shutdown. The lease expires. */
  'leader-overran': ElectionFields & { term: bigint; methods: readonly string[] };
  /** Shutdown began (`draining`), or ended with `left` locks that were not released and expire. */
  shutdown: { phase: 'draining' | 'done'; left: number };
}

export type LockEventName = keyof LockEvents;

/** The lock module and process that published an event. */
export interface EventSource {
  readonly namespace: string;
  readonly instance: string;
  /** The name of the backend: `redis`, `postgres`, … */
  readonly backend: string;
  /** The name of the lock module; `default` for the one without a name. */
  readonly module: string;
}

/** By what an event of a key is counted. */
export interface EventSubject {
  readonly label?: string | undefined;
  /** @default 'lock' */
  readonly purpose?: LockPurpose | undefined;
  /** The permit of a lock with permits. */
  readonly eventPermit?: number | undefined;
  /** Events that are not published, because the lock of which this is a part publishes them. */
  readonly suppressedEvents?: ReadonlySet<LockEventName> | undefined;
}

/** The fields of an event without those that follow from its key and its subject. */
export type EventData<Name extends LockEventName> = Omit<LockEvents[Name], 'template' | 'purpose' | 'permit'>;

/** A message on the channel `nestjs-distributed-lock:<event>` of `node:diagnostics_channel`. */
export type LockEventMessage<Name extends LockEventName> = LockEvents[Name] & EventSource;

export type LockEventListeners = {
  readonly [Name in LockEventName]?: (message: LockEventMessage<Name>) => void;
};

/** What an event may be about. */
interface NamedFields {
  readonly key?: string;
  readonly job?: string;
  readonly election?: string;
}

/** Publishes events: on the process-wide diagnostics channels, and to the listeners of one module. */
export class Events {
  readonly source: EventSource;
  readonly #listeners: LockEventListeners;

  constructor(source: EventSource, listeners: LockEventListeners = {}) {
    this.source = source;
    this.#listeners = listeners;
  }

  /** Whether the event has a listener or a subscriber. */
  hasListeners(name: LockEventName): boolean {
    return this.#listeners[name] !== undefined || channels[name].hasSubscribers;
  }

  emit<Name extends LockEventName>(name: Name, event: EventData<Name>, subject?: EventSubject): void {
    const listener = this.#listeners[name];
    const subscribed = channels[name];
    if (!listener && !subscribed.hasSubscribers) return;
    if (subject?.suppressedEvents?.has(name)) return;
    const message = this.#toMessage(event, subject) as LockEventMessage<Name>;
    try {
      listener?.(message);
    } catch (error) {
      // Thrown later, as a diagnostics channel does: an error of a listener must not fail the operation on the lock.
      process.nextTick(() => {
        throw error;
      });
    }
    subscribed.publish(message);
  }

  /**
   * Adds the module, and by what the event is counted. Changes the object, which belongs to this one event: copying it
   * takes several times as long as everything else here.
   */
  #toMessage(event: NamedFields, { label, purpose = 'lock', eventPermit }: EventSubject = {}): object {
    const { namespace, instance, backend, module } = this.source;
    const { key, job, election } = event;
    const message = event as { -readonly [Field in keyof (EventSource & KeyFields)]?: unknown };
    message.namespace = namespace;
    // That of the run, in an event about the run of another process.
    message.instance ??= instance;
    message.backend = backend;
    message.module = module;
    if (key !== undefined) {
      message.template = purpose === 'lock' ? (label ?? templateOf(key)) : key;
      message.purpose = purpose;
      if (eventPermit !== undefined) message.permit = eventPermit;
    } else if (job !== undefined || election !== undefined) message.template = job ?? election;
    return message;
  }
}
