import { subscribeToEvents } from '../core/event-subscriptions.js';
import type {
  EventSource,
  LockEventListeners,
  LockEventMessage,
  LockEventName,
  TickSkipReason,
} from '../core/events.js';
import { formatReason } from '../core/format.js';

export interface RecentEvent {
  readonly event: LockEventName;
  /** The key, job, election or server that it is about. */
  readonly subject: string;
  readonly detail: string;
  /** Whether it is a fault, and not the ordinary course of things. */
  readonly isFault: boolean;
  /** When it was last seen. */
  readonly atMs: number;
  /** How often it was seen in a row, for example while the store is down. */
  readonly count: number;
}

interface Description {
  readonly subject?: string;
  readonly detail: string;
  readonly isFault?: boolean;
}

type Describe = {
  readonly [Name in LockEventName]?: (message: LockEventMessage<Name>) => Description | undefined;
};

const fault = (subject: string, detail: string): Description => ({ subject, detail, isFault: true });

/**
 * What is worth a line: rare events, and of frequent ones only those that a person should look at. Each grant and each
 * release would fill the list within a second.
 */
const DESCRIBE: Describe = {
  timeout: ({ key, waitedMs }) => fault(key, `a caller gave up after ${seconds(waitedMs)}`),
  'renewal-failed': ({ key, remainingMs, cause }) =>
    fault(key, `${seconds(remainingMs)} of the lease left: ${formatReason(cause)}`),
  lost: ({ key, fencingToken, error }) => fault(key, `token ${fencingToken}: ${formatReason(error)}`),
  stalled: ({ lateMs, held }) =>
    fault('', `the event loop was blocked for ${seconds(lateMs)} with ${held} locks held`),
  'transaction-open': ({ key }) => fault(key, 'released before the COMMIT of its transaction'),
  'order-inverted': ({ key, heldKey }) =>
    fault(key, `acquired while "${heldKey}" is held; other calls may use the opposite order`),
  unavailable: ({ key, operation, cause }) => fault(key, `${operation}: ${formatReason(cause)}`),
  'server-away': ({ server, fault: reason, voting, servers }) =>
    fault(server, `${reason}; ${voting} of ${servers} servers count`),
  'server-back': ({ server, voting, servers }) => ({
    subject: server,
    detail: `${voting} of ${servers} servers count`,
  }),
  'tick-skipped': ({ job, reason }) => (isExpected(reason) ? undefined : fault(job, reason)),
  'tick-ended': ({ job, outcome, durationMs, error }) =>
    outcome === 'completed'
      ? undefined
      : fault(job, `${outcome} after ${seconds(durationMs)}${error ? `: ${formatReason(error)}` : ''}`),
  'run-overdue': ({ job, instance, isBlocking }) =>
    fault(job, `the run on ${instance} does not renew its lease${isBlocking ? ' and blocks the job' : ''}`),
  elected: ({ election, term }) => ({ subject: election, detail: `this replica leads, term ${term}` }),
  revoked: ({ election, term, reason }) => ({ subject: election, detail: `term ${term} ended: ${reason}` }),
  'leader-failed': ({ election, method, error }) => fault(election, `${method}: ${formatReason(error)}`),
  'leader-overran': ({ election, methods }) => fault(election, `still running: ${methods.join(', ')}`),
  shutdown: ({ phase }) => ({ detail: phase }),
};

/** Each tick of a paused job is skipped, which would replace all other events. */
const isExpected = (reason: TickSkipReason) =>
  reason === 'taken' || reason === 'not-leader' || reason === 'paused';

const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`;

const MAX_EVENTS = 100;
const MAX_DETAIL_LENGTH = 300;

/** The last events of one lock module in this process, the newest first. */
export class RecentEvents {
  readonly #source: EventSource;
  #events: readonly RecentEvent[] = [];
  readonly #now: () => number;
  readonly #unsubscribe: () => void;

  constructor(source: EventSource, now: () => number) {
    this.#source = source;
    this.#now = now;
    const names = Object.keys(DESCRIBE) as LockEventName[];
    const listeners = names.map((name) => [name, (message: never) => this.#add(name, message)]);
    this.#unsubscribe = subscribeToEvents(Object.fromEntries(listeners) as LockEventListeners);
  }

  /** Returns another array after each event. */
  get all(): readonly RecentEvent[] {
    return this.#events;
  }

  close(): void {
    this.#unsubscribe();
  }

  #add(event: LockEventName, message: LockEventMessage<LockEventName>): void {
    const { namespace, module } = this.#source;
    if (message.namespace !== namespace || message.module !== module) return;
    const describe = DESCRIBE[event] as ((message: object) => Description | undefined) | undefined;
    const description = describe?.(message);
    if (!description) return;
    const { subject = '', isFault = false } = description;
    const detail = description.detail.slice(0, MAX_DETAIL_LENGTH);
    const [last, ...older] = this.#events;
    // While the store is down, each key has the same fault. Two jobs that fail alike are two faults.
    const isSame = event === 'unavailable' || last?.subject === subject;
    const isRepeated = last?.event === event && last.detail === detail && isSame;
    const count = isRepeated ? last.count + 1 : 1;
    const added = { event, subject, detail, isFault, atMs: this.#now(), count };
    this.#events = [added, ...(isRepeated ? older : this.#events.slice(0, MAX_EVENTS - 1))];
  }
}
