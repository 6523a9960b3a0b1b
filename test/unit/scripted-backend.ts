import { MemoryBackend } from '../../lib/backends/memory/memory-backend.js';
import type { BatchResult, RequestBatch } from '../../lib/core/backend.js';
import type { LockRecord } from '../../lib/core/lock-record.js';
import type { TickState } from '../../lib/core/tick.js';
import { type UnknownResult, connectionLostResult, neverSentResult } from '../../lib/core/unknown-result.js';

/** `readTicks` is also a registration. */
type Verb = keyof RequestBatch | 'readTicks' | 'inspect';

/** What befalls one exchange on its way. */
type NetworkFault =
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
  readonly #sentAtMs: Record<Exclude<Verb, 'inspect'>, number[]> = {
    acquire: [],
    renew: [],
    release: [],
    readTicks: [],
  };
  readonly #faults: { verb: Verb; fault: NetworkFault; times: number }[] = [];

  /** The next `times` exchanges with this verb meet this fate. */
  next(verb: Verb, fault: NetworkFault, times = 1): void {
    this.#faults.push({ verb, fault, times });
  }

  count(verb: Verb): number {
    return this.log.filter((logged) => logged === verb).length;
  }

  /** When each exchange with this verb was sent. */
  sentAtMs(verb: Exclude<Verb, 'inspect'>): readonly number[] {
    return this.#sentAtMs[verb];
  }

  override async execute(requests: RequestBatch): Promise<BatchResult> {
    const verbs = Object.keys(requests) as (keyof RequestBatch)[];
    for (const verb of verbs) this.#record(verb);
    const fault = verbs.map((verb) => this.#faultOf(verb)).find((planned) => planned !== undefined);
    if (!fault) return super.execute(requests);
    if ('refuse' in fault) return resultForAll(requests, neverSentResult(new Error('connection refused')));
    if ('loseConnection' in fault) return this.#loseConnection(requests, fault.landsAfterMs);
    if ('delayRequestMs' in fault) await this.#pass(fault.delayRequestMs);
    const result = await super.execute(requests);
    if ('loseAnswer' in fault) throw new Error('connection reset');
    if ('delayAnswerMs' in fault) await this.#pass(fault.delayAnswerMs);
    if ('silence' in fault) await new Promise(() => undefined);
    return result;
  }

  override async inspect(key: string): Promise<LockRecord | null> {
    const fault = this.#faultOf('inspect');
    if (fault && 'refuse' in fault) throw new Error('connection refused');
    if (fault && 'silence' in fault) await new Promise(() => undefined);
    if (fault && 'delayAnswerMs' in fault) await this.#pass(fault.delayAnswerMs);
    return super.inspect(key);
  }

  override readTicks(key: string): Promise<TickState> {
    return this.#unlessRefused(() => super.readTicks(key));
  }

  override registerTicks(key: string): Promise<TickState> {
    return this.#unlessRefused(() => super.registerTicks(key));
  }

  async #unlessRefused(read: () => Promise<TickState>): Promise<TickState> {
    this.#record('readTicks');
    if (this.#faultOf('readTicks')) throw new Error('connection refused');
    return read();
  }

  #record(verb: Exclude<Verb, 'inspect'>): void {
    this.log.push(verb);
    this.#sentAtMs[verb].push(this.clock.monotonicMs());
  }

  #faultOf(verb: Verb): NetworkFault | undefined {
    const planned = this.#faults.find((candidate) => candidate.verb === verb && candidate.times > 0);
    if (planned) planned.times -= 1;
    return planned?.fault;
  }

  async #loseConnection(requests: RequestBatch, landsAfterMs?: number): Promise<BatchResult> {
    if (landsAfterMs === undefined) await super.execute(requests);
    else this.clock.after(landsAfterMs, () => void super.execute(requests));
    return resultForAll(requests, connectionLostResult(new Error('connection lost')));
  }

  #pass(ms: number): Promise<void> {
    return new Promise((resolve) => this.clock.after(ms, resolve));
  }
}

function resultForAll(
  { acquire = [], renew = [], release = [] }: RequestBatch,
  result: UnknownResult,
): BatchResult {
  return {
    acquire: acquire.map(() => result),
    renew: renew.map(() => result),
    release: release.map(() => result),
  };
}
