import { randomUUID } from 'node:crypto';
import { FencedRegister } from '../fenced-register.js';
import type { Store } from '../stores.js';
import { until } from '../until.js';
import { type Worker, startWorker } from './start-worker.js';

/** What a worker is told. */
export type LoadOrder = { readonly answered: number } | { readonly holdOn: boolean } | { readonly end: true };

interface Told {
  readonly key: string;
  readonly fencingToken: string;
  /** By the clock of the machine, when it was granted. */
  readonly fromMs: number;
  /** Asks for a write. */
  readonly write?: number;
  /** When it last thought that it held the lock; tells that the turn is over. */
  readonly toMs?: number;
  /** Heard that the lock was lost. */
  readonly wasTold?: boolean;
}

interface Turn {
  readonly key: string;
  readonly fencingToken: bigint;
  readonly fromMs: number;
  readonly toMs: number;
  readonly wasTold: boolean;
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

/** What is written to under the locks of one key. */
class Written {
  readonly #register = new FencedRegister();
  #newestFromMs = 0;
  olderRefused = 0;
  olderAccepted = 0;

  write({ fencingToken, fromMs }: Told): void {
    const isOlder = fromMs < this.#newestFromMs;
    const isAccepted = this.#register.write(BigInt(fencingToken));
    if (isOlder && isAccepted) this.olderAccepted += 1;
    if (isOlder && !isAccepted) this.olderRefused += 1;
    if (isAccepted) this.#newestFromMs = Math.max(this.#newestFromMs, fromMs);
  }
}

/** Processes that take keys in turn and write under them, while somebody else makes trouble. */
export class FencedLoad {
  readonly namespace = randomUUID();
  readonly #workers: readonly Worker<Told>[];
  readonly #turns: Turn[] = [];
  readonly #written: ReadonlyMap<string, Written>;

  constructor({ processes, ...load }: Load) {
    const { namespace } = this;
    this.#written = new Map([...BRIEF, ...load.keys].map((key) => [key, new Written()]));
    this.#workers = Array.from({ length: processes }, () =>
      startWorker<Told>('write-fenced', { ...load, brief: BRIEF, namespace }),
    );
    for (const worker of this.#workers) {
      worker.process.on('message', (message) => this.#hear(worker, message as Told));
    }
  }

  /** How many turns have ended so far. */
  get turns(): number {
    return this.#turns.length;
  }

  /** Settles when so many more turns have ended. */
  async goesOn(more: number): Promise<void> {
    const enough = this.turns + more;
    await until(() => this.turns >= enough);
  }

  /** Whoever holds a lock keeps it from now on, or no longer. */
  holdOn(isHeld: boolean): void {
    for (const worker of this.#workers) order(worker, { holdOn: isHeld });
  }

  async end(): Promise<LoadOutcome> {
    for (const worker of this.#workers) order(worker, { end: true });
    const exits = await Promise.all(this.#workers.map(({ ended }) => ended));
    const turns = this.#turns.sort((one, other) => one.fromMs - other.fromMs);
    const written = [...this.#written.values()];
    return {
      exits,
      acquisitions: turns.length,
      doubleGrants: doubleGrants(turns),
      tokensThatDidNotGrow: neighbours(turns).filter(([one, next]) => next.fencingToken <= one.fencingToken)
        .length,
      olderRefused: sum(written.map(({ olderRefused }) => olderRefused)),
      olderAccepted: sum(written.map(({ olderAccepted }) => olderAccepted)),
      longestPauseMs: longestPauseMs(turns.filter(({ key }) => BRIEF.includes(key))),
      holdersTold: turns.filter(({ wasTold }) => wasTold).length,
    };
  }

  #hear(worker: Worker<Told>, told: Told): void {
    const { key, fencingToken, fromMs, toMs, wasTold = false, write } = told;
    if (write !== undefined) {
      this.#written.get(key)!.write(told);
      order(worker, { answered: write });
    }
    if (toMs !== undefined)
      this.#turns.push({ key, fencingToken: BigInt(fencingToken), fromMs, toMs, wasTold });
  }
}

export interface LoadOutcome {
  readonly exits: readonly unknown[];
  readonly acquisitions: number;
  /** Grants of a key that came while an earlier holder of it still thought that it held it. */
  readonly doubleGrants: number;
  readonly tokensThatDidNotGrow: number;
  /** Writes of a holder after a later one had written, */
  readonly olderRefused: number;
  /** and such that were let through. */
  readonly olderAccepted: number;
  /** Between one grant and the next of whatever key that nobody holds for long. */
  readonly longestPauseMs: number;
  readonly holdersTold: number;
}

const order = (worker: Worker<Told>, message: LoadOrder) => void worker.process.send(message);
const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);

/** Each turn with the next one of its key. */
function neighbours(turns: readonly Turn[]): [Turn, Turn][] {
  const last = new Map<string, Turn>();
  return turns.flatMap((turn): [Turn, Turn][] => {
    const before = last.get(turn.key);
    last.set(turn.key, turn);
    return before ? [[before, turn]] : [];
  });
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
