import { randomUUID } from 'node:crypto';
import type { Store } from '../../support/stores.js';
import { until } from '../../support/until.js';
import { type Worker, startWorker } from '../../cluster/start-worker.js';

/** What a worker is told. */
export type LoadCommand =
  { readonly answered: number } | { readonly holdOn: boolean } | { readonly end: true };

interface LoadMessage {
  readonly key: string;
  readonly fencingToken: string;
  /** By the clock of the machine, when it was granted. */
  readonly fromMs: number;
  /** Asks for a write. */
  readonly write?: number;
  /** When it last thought that it held the lock; tells that the turn is over. */
  readonly toMs?: number;
  /** Heard that the lock was lost. */
  readonly wasNotified?: boolean;
}

interface Turn {
  readonly worker: Worker<LoadMessage>;
  readonly key: string;
  readonly fencingToken: bigint;
  readonly fromMs: number;
  readonly toMs: number;
  readonly wasNotified: boolean;
}

interface Load {
  readonly store: Store;
  readonly keys: readonly string[];
  readonly processes: number;
  /** Callers in each process, beside one who takes keys that nobody holds for long. */
  readonly loops: number;
  readonly leaseMs: number;
}

const BRIEF = Array.from({ length: 12 }, (_, index) => `brief-${index}`);

/** What is written to under the locks of one key, and refuses older fencing tokens. Here, where no failover forgets it. */
class FencedWriteLog {
  #newestToken = 0n;
  #newestFromMs = 0;
  refused = 0;
  olderAccepted = 0;

  write({ fencingToken, fromMs }: LoadMessage): void {
    const token = BigInt(fencingToken);
    if (token < this.#newestToken) {
      this.refused += 1;
      return;
    }
    this.#newestToken = token;
    if (fromMs < this.#newestFromMs) this.olderAccepted += 1;
    this.#newestFromMs = Math.max(this.#newestFromMs, fromMs);
  }
}

/** Processes that take keys in turn and write under them, while somebody else makes trouble. */
export class FencedLoad {
  readonly namespace = randomUUID();
  readonly #workers: readonly Worker<LoadMessage>[];
  readonly #turns: Turn[] = [];
  readonly #writeLogs: ReadonlyMap<string, FencedWriteLog>;

  constructor({ processes, ...load }: Load) {
    const { namespace } = this;
    this.#writeLogs = new Map([...BRIEF, ...load.keys].map((key) => [key, new FencedWriteLog()]));
    this.#workers = Array.from({ length: processes }, () =>
      startWorker<LoadMessage>('write-fenced', { ...load, brief: BRIEF, namespace }),
    );
    for (const worker of this.#workers) {
      worker.process.on('message', (message) => this.#onMessage(worker, message as LoadMessage));
    }
  }

  /** How many turns have ended so far. */
  get turns(): number {
    return this.#turns.length;
  }

  /** Settles when so many more turns have ended. */
  async waitForTurns(more: number): Promise<void> {
    const enough = this.turns + more;
    await until(() => this.turns >= enough);
  }

  /** Whoever holds a lock keeps it from now on, or no longer. */
  holdOn(isHeld: boolean): void {
    for (const worker of this.#workers) sendCommand(worker, { holdOn: isHeld });
  }

  async end(): Promise<LoadOutcome> {
    for (const worker of this.#workers) sendCommand(worker, { end: true });
    const exits = await Promise.all(this.#workers.map(({ ended }) => ended));
    const turns = this.#turns.sort((one, other) => one.fromMs - other.fromMs);
    const written = [...this.#writeLogs.values()];
    return {
      exits,
      acquisitions: turns.length,
      doubleGrants: doubleGrants(turns),
      tokensThatDidNotGrow: tokensThatDidNotGrow(turns),
      refused: sum(written.map(({ refused }) => refused)),
      olderAccepted: sum(written.map(({ olderAccepted }) => olderAccepted)),
      longestPauseMs: longestPauseMs(turns.filter(({ key }) => BRIEF.includes(key))),
      holdersNotified: turns.filter(({ wasNotified }) => wasNotified).length,
    };
  }

  #onMessage(worker: Worker<LoadMessage>, message: LoadMessage): void {
    const { key, fencingToken, fromMs, toMs, wasNotified = false, write } = message;
    if (write !== undefined) {
      this.#writeLogs.get(key)!.write(message);
      sendCommand(worker, { answered: write });
    }
    if (toMs !== undefined)
      this.#turns.push({ worker, key, fencingToken: BigInt(fencingToken), fromMs, toMs, wasNotified });
  }
}

export interface LoadOutcome {
  readonly exits: readonly unknown[];
  readonly acquisitions: number;
  /** Grants of a key that came while an earlier holder of it still thought that it held it. */
  readonly doubleGrants: number;
  readonly tokensThatDidNotGrow: number;
  /** Writes that came with an older fencing token than one before. */
  readonly refused: number;
  /** Writes that were let through although somebody who was granted the key later had written. */
  readonly olderAccepted: number;
  /** Between one grant and the next of whatever key that nobody holds for long. */
  readonly longestPauseMs: number;
  readonly holdersNotified: number;
}

/** For the table of a report. */
export const rowOf = (outcome: LoadOutcome) => ({
  acquisitions: outcome.acquisitions,
  'double grants': outcome.doubleGrants,
  'writes refused by their fencing token': outcome.refused,
  'writes of an older holder accepted': outcome.olderAccepted,
  'tokens that did not grow': outcome.tokensThatDidNotGrow,
  'longest time without service, ms': Math.round(outcome.longestPauseMs),
  'holders told': outcome.holdersNotified,
});

const sendCommand = (worker: Worker<LoadMessage>, message: LoadCommand) => void worker.process.send(message);
const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);

/** How many fencing tokens a grant takes up, for callers of one process who hold it in turn. */
const BLOCK = 64n;

/** But for turns that are handed on within a process which does not know yet that its grant was lost. */
function tokensThatDidNotGrow(turns: readonly Turn[]): number {
  const before = new Map<string, Turn[]>();
  return turns.filter((turn) => {
    const { worker, key, fencingToken } = turn;
    const earlier = before.get(key) ?? [];
    before.set(key, [...earlier.slice(-500), turn]);
    const isLarger = (earlier.at(-1)?.fencingToken ?? 0n) < fencingToken;
    const isHandedOn = earlier.some(
      (one) =>
        one.worker === worker && one.fencingToken < fencingToken && one.fencingToken + BLOCK > fencingToken,
    );
    return !isLarger && !isHandedOn;
  }).length;
}

const longestPauseMs = (turns: readonly Turn[]) =>
  turns.slice(1).reduce((longest, { fromMs }, index) => Math.max(longest, fromMs - turns[index]!.fromMs), 0);

function doubleGrants(turns: readonly Turn[]): number {
  const heldUntilMs = new Map<string, number>();
  return turns.filter(({ key, fromMs, toMs }) => {
    const untilMs = heldUntilMs.get(key) ?? 0;
    heldUntilMs.set(key, Math.max(untilMs, toMs));
    return fromMs < untilMs;
  }).length;
}
