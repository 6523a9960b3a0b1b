import { fileURLToPath } from 'node:url';
import { execaNode } from 'execa';
import type { CrontabJob } from '../dispatch/crontab-job.entity.js';
import type { Dispatch } from '../dispatch/dispatch.entity.js';

const main = fileURLToPath(new URL('../main.js', import.meta.url));

/** How an order ended: 201, 409, something else, or no answer at all. */
export type Outcome = 'accepted' | 'refused' | 'failed' | 'cut off';

const outcomes: Readonly<Record<number, Outcome>> = { 201: 'accepted', 409: 'refused' };

/** Who leads the dispatch. */
export interface Leader {
  readonly instance: string;
  readonly term: bigint;
}

/** A replica of the shop: a process of its own, that is talked to over HTTP. */
export class Replica {
  /** Resolves when the replica answers. */
  static async start(name: string, environment: Readonly<Record<string, string>>): Promise<Replica> {
    const process = launch({ ...environment, SAMPLE_REPLICA: name, PORT: '0' });
    const { url } = (await process.getOneMessage()) as { url: string };
    return new Replica(name, url, process);
  }

  private constructor(
    readonly name: string,
    readonly url: string,
    private readonly process: ReturnType<typeof launch>,
  ) {}

  get pid(): number | undefined {
    return this.process.pid;
  }

  /** Orders one item, and never rejects. */
  async order(product: string, paymentMs?: number): Promise<Outcome> {
    try {
      const response = await fetch(`${this.url}/orders`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ product, paymentMs }),
      });
      await response.arrayBuffer();
      return outcomes[response.status] ?? 'failed';
    } catch {
      return 'cut off';
    }
  }

  /** Which replica holds the lock, as this one is told by the store. */
  async holderOf(key: string): Promise<string | undefined> {
    const lock = await this.#ask<{ instance: string }>(`locks/${encodeURIComponent(key)}`);
    return lock?.instance;
  }

  /** Which replica leads the dispatch, as this one is told by the store. */
  async leader(): Promise<Leader | undefined> {
    const leader = await this.#ask<{ instance: string; term: string }>('leader');
    return leader && { instance: leader.instance, term: BigInt(leader.term) };
  }

  /** Newest first. */
  latestDispatches(): Promise<Dispatch[] | undefined> {
    return this.#ask('dispatches');
  }

  crontab(): Promise<CrontabJob[] | undefined> {
    return this.#ask('crontab');
  }

  /** Ends the process without giving it a chance to tidy up. */
  async kill(): Promise<void> {
    this.process.kill('SIGKILL');
    await this.process;
  }

  /** Lets the process finish its work and give back its locks; by force after five seconds. */
  async stop(): Promise<void> {
    this.process.kill('SIGTERM');
    await this.process;
  }

  /** `undefined` if there is nothing to tell. */
  async #ask<T>(path: string): Promise<T | undefined> {
    const response = await fetch(`${this.url}/${path}`);
    const body = await response.json();
    return response.ok ? (body as T) : undefined;
  }
}

const launch = (env: Readonly<Record<string, string>>) =>
  execaNode(main, { env, ipc: true, reject: false, stdout: 'inherit', stderr: 'inherit' });
