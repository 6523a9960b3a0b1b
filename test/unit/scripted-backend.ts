import { MemoryBackend } from '../../lib/backends/memory/memory-backend.js';
import {
  type Answers,
  type Requests,
  type Unknown,
  connectionLost,
  neverSent,
} from '../../lib/core/backend.js';

type Verb = keyof Requests;

/** What befalls one exchange on its way. */
type Fate =
  /** It arrives, and its answer is lost with the connection. */
  | { readonly loseAnswer: true }
  /** It arrives, at once or later, and the connection is lost before the answer: another one may answer. */
  | { readonly loseConnection: true; readonly landsAfterMs?: number }
  /** It arrives, and its answer comes only so much later. */
  | { readonly delayAnswerMs: number }
  /** It arrives only so much later. */
  | { readonly delayRequestMs: number }
  /** It arrives only so much later, and its answer is lost. */
  | { readonly delayRequestMs: number; readonly loseAnswer: true }
  /** Nothing ever comes back. */
  | { readonly silence: true }
  /** It never arrives. */
  | { readonly refuse: true };

/** The memory backend behind a network that does to each exchange what a test tells it. */
export class ScriptedBackend extends MemoryBackend {
  readonly log: Verb[] = [];
  readonly #sentAtMs: Record<Verb, number[]> = { acquire: [], renew: [], release: [] };
  readonly #fates: { verb: Verb; fate: Fate; times: number }[] = [];

  /** The next `times` exchanges with this verb meet this fate. */
  next(verb: Verb, fate: Fate, times = 1): void {
    this.#fates.push({ verb, fate, times });
  }

  count(verb: Verb): number {
    return this.log.filter((logged) => logged === verb).length;
  }

  /** When each exchange with this verb was sent. */
  sentAtMs(verb: Verb): readonly number[] {
    return this.#sentAtMs[verb];
  }

  override async exchange(requests: Requests): Promise<Answers> {
    const verbs = Object.keys(requests) as Verb[];
    this.log.push(...verbs);
    for (const verb of verbs) this.#sentAtMs[verb].push(this.clock.monotonicMs());
    const fate = verbs.map((verb) => this.#fateOf(verb)).find((planned) => planned !== undefined);
    if (!fate) return super.exchange(requests);
    if ('refuse' in fate) return answered(requests, neverSent(new Error('connection refused')));
    if ('loseConnection' in fate) return this.#loseConnection(requests, fate.landsAfterMs);
    if ('delayRequestMs' in fate) await this.#pass(fate.delayRequestMs);
    const answers = await super.exchange(requests);
    if ('loseAnswer' in fate) throw new Error('connection reset');
    if ('delayAnswerMs' in fate) await this.#pass(fate.delayAnswerMs);
    if ('silence' in fate) await new Promise(() => undefined);
    return answers;
  }

  #fateOf(verb: Verb): Fate | undefined {
    const planned = this.#fates.find((candidate) => candidate.verb === verb && candidate.times > 0);
    if (planned) planned.times -= 1;
    return planned?.fate;
  }

  async #loseConnection(requests: Requests, landsAfterMs?: number): Promise<Answers> {
    if (landsAfterMs === undefined) await super.exchange(requests);
    else this.clock.after(landsAfterMs, () => void super.exchange(requests));
    return answered(requests, connectionLost(new Error('connection lost')));
  }

  #pass(ms: number): Promise<void> {
    return new Promise((resolve) => this.clock.after(ms, resolve));
  }
}

function answered({ acquire = [], renew = [], release = [] }: Requests, answer: Unknown): Answers {
  return {
    acquire: acquire.map(() => answer),
    renew: renew.map(() => answer),
    release: release.map(() => answer),
  };
}
