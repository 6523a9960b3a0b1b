import { randomBytes } from 'node:crypto';
import { withTimeout } from '../../../core/requests/with-timeout.js';
import { MAX_HISTORY_ENTRIES } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { appendHistory, readHistory } from '../history.js';
import { fixedWidth } from './server-call.js';
import type { QuorumServers } from './servers/quorum-servers.js';

/**
 * The history of keys on all servers. Each entry has a time, a session and a number, so that two entries of the same µs or
 * with the same text stay two.
 */
export class QuorumHistory {
  readonly #servers: QuorumServers;
  readonly #session = randomBytes(6).toString('base64url');
  #count = 0;

  constructor(servers: QuorumServers) {
    this.#servers = servers;
  }

  /** Sends the entry to all servers. Resolves when a majority has it. */
  async append(key: string, text: string, timeoutMs: number): Promise<void> {
    this.#count += 1;
    const timestamp = fixedWidth(this.#servers.nextBallotUs(0));
    const stored = `${timestamp} ${this.#session}:${this.#count} ${text}`;
    await this.#runOnAll(
      (server) => server.withClient((client) => appendHistory(client, key, stored)),
      timeoutMs,
    );
  }

  /** The newest entries of all servers that reply, which are at least a majority; the newest entry first. */
  async read(key: string, timeoutMs: number): Promise<readonly string[]> {
    const lists = await this.#runOnAll(
      (server) => server.withClient((client) => readHistory(client, key)),
      timeoutMs,
    );
    const stored = [...new Set(lists.flat())].sort().reverse().slice(0, MAX_HISTORY_ENTRIES);
    return stored.map((entry) => entry.split(' ').slice(2).join(' '));
  }

  /**
   * Waits for a majority, and returns what has arrived by then.
   *
   * @throws the reason why fewer than a majority replied in time
   */
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
