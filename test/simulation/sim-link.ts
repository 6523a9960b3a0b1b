import {
  type Answers,
  type Freed,
  type LockBackend,
  type LockRecord,
  type Requests,
  neverSent,
  unknown,
} from '../../lib/core/backend.js';
import type { Clock } from '../../lib/core/clock.js';
import type { Random } from '../random.js';
import type { SimProcess } from './sim-process.js';
import type { SimStore } from './sim-store.js';
import type { Timeline } from './timeline.js';

/** How often what befalls a message on its way, as parts of 1. */
export interface Troubles {
  loseRequest: number;
  loseAnswer: number;
  /** The store sees the request again. */
  repeat: number;
  /** It is on its way for up to seconds. */
  delay: number;
  /** Some of the answers are lost. */
  tear: number;
  loseCall: number;
  /** Messages overtake each other, as they do across a reconnect. */
  isUnordered: boolean;
}

export const NO_TROUBLES: Readonly<Troubles> = {
  loseRequest: 0,
  loseAnswer: 0,
  repeat: 0,
  delay: 0,
  tear: 0,
  loseCall: 0,
  isUnordered: false,
};

/** Sees what the store does. */
export interface StoreWitness {
  answered(requests: Requests, answers: Answers): void;
  forced(key: string): void;
}

interface LinkParts {
  readonly process: SimProcess;
  readonly store: SimStore;
  readonly timeline: Timeline;
  readonly random: Random;
  readonly troubles: Troubles;
  readonly witness: StoreWitness;
  readonly longestDelayMs: number;
  readonly log?: (line: string) => void;
  /** Hears of every holder that asks for a key. */
  readonly onAsked: (holder: string) => void;
}

/** More than the tokens of a block are µs. */
const SHORTEST_TRIP_MS = 0.1;

const lost = () => new Error('connection reset');

/** The store as one process sees it, behind a network that does to each message what the seed says. */
export class SimLink implements LockBackend {
  readonly name = 'simulated';
  readonly clock: Clock;
  readonly enoughAtOnce?: number;
  /** What becomes of all messages now. */
  state: 'up' | 'refused' | 'silent' = 'up';
  readonly #parts: LinkParts;
  readonly #listeners = new Set<(freed: Freed) => void>();
  #lastArrivalMs = 0;
  #lastAnswerMs = 0;

  constructor(parts: LinkParts) {
    this.#parts = parts;
    this.clock = parts.process.clock;
    if (parts.random.chance(0.2)) this.enoughAtOnce = 2;
  }

  exchange(requests: Requests, limitMs: number): Promise<Answers> {
    const { store, witness, random, onAsked, log } = this.#parts;
    for (const { holder } of requests.acquire ?? []) onAsked(holder);
    if (this.state === 'refused' && random.chance(0.5)) return Promise.resolve(refused(requests));
    return this.#travel(limitMs, async () => {
      const answers = await store.backend.exchange(requests, limitMs);
      witness.answered(requests, answers);
      log?.(`${JSON.stringify(requests)} -> ${shown(answers)}`);
      return this.#happens('tear') ? this.#torn(answers) : this.#called(answers);
    });
  }

  inspect(key: string, limitMs: number): Promise<LockRecord | null> {
    return this.#travel(limitMs, () => this.#parts.store.backend.inspect(key, limitMs));
  }

  forceRelease(key: string, fencingToken: bigint, limitMs: number): Promise<boolean> {
    const { store, witness } = this.#parts;
    return this.#travel(limitMs, async () => {
      const isDone = await store.backend.forceRelease(key, fencingToken, limitMs);
      if (isDone) witness.forced(key);
      return isDone;
    });
  }

  note(): Promise<void> {
    return Promise.resolve();
  }

  notes(): Promise<readonly string[]> {
    return Promise.resolve([]);
  }

  onFreed(listener: (freed: Freed) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  /** Calls the process. */
  call(freed: Freed): void {
    if (this.state !== 'up' || this.#happens('loseCall')) return;
    this.#parts.timeline.in(this.#tripMs(), () => {
      this.#parts.process.run('message', () => {
        for (const listener of this.#listeners) listener(freed);
      });
    });
  }

  /** The question goes to the store, and the answer comes back; or not. */
  #travel<Answer>(limitMs: number, ask: () => Promise<Answer>): Promise<Answer> {
    const { timeline, store, random } = this.#parts;
    const sentAtMs = timeline.nowMs;
    return new Promise((resolve, reject) => {
      const fail = () => {
        if (random.chance(0.5)) this.#answerIn(this.#tripMs(), () => reject(lost()));
      };
      if (this.state !== 'up') {
        if (this.state === 'refused') this.#answerIn(this.#tripMs(), () => reject(lost()));
        return;
      }
      if (this.#happens('loseRequest')) {
        fail();
        return;
      }
      const atMs = this.#inOrder('arrival', timeline.nowMs + this.#tripMs() + store.slowMs);
      timeline.at(atMs, () => {
        // A connection that is silent for so long is given up, and what is on its way with it.
        if (timeline.nowMs - sentAtMs > limitMs) return;
        if (store.isDown) this.#answerIn(this.#tripMs(), () => reject(lost()));
        else {
          void ask().then((answer) => {
            if (this.state !== 'up' || this.#happens('loseAnswer')) fail();
            else this.#answerIn(this.#tripMs(), () => resolve(answer));
          });
        }
      });
      if (!this.#happens('repeat')) return;
      timeline.at(atMs + random.between(0, limitMs), () => {
        if (timeline.nowMs - sentAtMs <= limitMs && !store.isDown) void ask();
      });
    });
  }

  #answerIn(tripMs: number, settle: () => void): void {
    const { timeline, process } = this.#parts;
    timeline.at(this.#inOrder('answer', timeline.nowMs + tripMs), () => process.run('message', settle));
  }

  #inOrder(way: 'arrival' | 'answer', atMs: number): number {
    if (this.#parts.troubles.isUnordered) return atMs;
    if (way === 'arrival') return (this.#lastArrivalMs = Math.max(this.#lastArrivalMs, atMs));
    return (this.#lastAnswerMs = Math.max(this.#lastAnswerMs, atMs));
  }

  #tripMs(): number {
    const { random } = this.#parts;
    if (!this.#happens('delay')) return random.between(SHORTEST_TRIP_MS, 2);
    return random.between(2, random.pick([100, this.#parts.longestDelayMs]));
  }

  #happens(trouble: Exclude<keyof Troubles, 'isUnordered'>): boolean {
    const chance = this.#parts.troubles[trouble];
    return chance > 0 && this.#parts.random.chance(chance);
  }

  #torn(answers: Answers): Answers {
    const torn = <Answer>(list: readonly Answer[]) =>
      list.map((answer) => (this.#parts.random.chance(0.5) ? unknown(lost()) : answer));
    return {
      acquire: torn(answers.acquire),
      renew: torn(answers.renew),
      release: torn(answers.release),
    };
  }

  /** A store with a line calls those who stand in it. */
  #called(answers: Answers): Answers {
    if (this.#parts.troubles.loseCall > 0.5) return answers;
    const acquire = answers.acquire.map((answer) =>
      answer.kind === 'taken' && answer.isInLine ? ({ ...answer, isCalled: true } as const) : answer,
    );
    return { ...answers, acquire };
  }
}

function refused({ acquire = [], renew = [], release = [] }: Requests): Answers {
  const never = neverSent(new Error('connection refused'));
  return {
    acquire: acquire.map(() => never),
    renew: renew.map(() => never),
    release: release.map(() => never),
  };
}

const shown = (answers: Answers) =>
  JSON.stringify(answers, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
