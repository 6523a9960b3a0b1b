import { randomBytes } from 'node:crypto';
import { withTimeout } from '../../../core/requests/with-timeout.js';
import { MAX_HISTORY_ENTRIES } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { appendHistory, readHistory } from '../history.js';
import { fixedWidth } from './server-call.js';
import type { QuorumServers } from './servers/quorum-servers.js';

/** Notes of the same µs, and the same words noted twice, stay apart. */
export class QuorumHistory {
  readonly #servers: QuorumServers;
  readonly #session = randomBytes(6).toString('base64url');
  #count = 0;

  constructor(servers: QuorumServers) {
    this.#servers = servers;
  }

  /** Writes it down on all servers; it stands when a majority has it. */
  async append(key: string, text: string, timeoutMs: number): Promise<void> {
    this.#count += 1;
    const timestamp = fixedWidth(this.#servers.nextBallotUs(0));
    const stored = `${timestamp} ${this.#session}:${this.#count} ${text}`;
    await this.#runOnAll(
      (server) => server.withClient((client) => appendHistory(client, key, stored)),
      timeoutMs,
    );
  }

  /** What a majority, or more of them, have written down. */
  async read(key: string, timeoutMs: number): Promise<readonly string[]> {
    const lists = await this.#runOnAll(
      (server) => server.withClient((client) => readHistory(client, key)),
      timeoutMs,
    );
    const stored = [...new Set(lists.flat())].sort().reverse().slice(0, MAX_HISTORY_ENTRIES);
    return stored.map((entry) => entry.split(' ').slice(2).join(' '));
  }

  /** The answers of all that answer in time, at least of a majority. */
  async #runOnAll<T>(
    run: (server: QuorumServers['all'][number]) => Promise<T>,
    timeoutMs: number,
  ): Promise<readonly T[]> {
    const results: T[] = [];
    const all = this.#servers.all.map((server) =>
      run(server).then(
        (result) => results.push(result),
        () => undefined,
      ),
    );
    const majority = new Promise<void>((resolve) => {
      const check = () => results.length >= this.#servers.needed && resolve();
      for (const one of all) void one.then(check);
      void Promise.all(all).then(() => resolve());
    });
    await withTimeout(systemClock, timeoutMs, majority, { awaited: true });
    if (results.length < this.#servers.needed) throw this.#servers.noMajorityResult(timeoutMs).cause;
    return [...results];
  }
}
