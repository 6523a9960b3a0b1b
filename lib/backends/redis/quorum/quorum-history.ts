import { randomBytes } from 'node:crypto';
import { MAX_HISTORY_ENTRIES } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { formatReason } from '../../../core/format.js';
import { withTimeout } from '../../../core/requests/store-timeout.js';
import { appendHistory, readHistory } from '../run-history.js';
import type { ScriptRunner } from '../script-runner.js';
import { fixedWidth } from './server-call.js';
import type { QuorumServers, Timeouts } from './servers/quorum-servers.js';

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
  async append(key: string, text: string, timeouts: Timeouts): Promise<void> {
    const untilMs = await this.#waitUntilReady(timeouts);
    this.#count += 1;
    const timestamp = fixedWidth(this.#servers.ballots.nextUs(0));
    const stored = `${timestamp} ${this.#session}:${this.#count} ${text}`;
    await this.#runOnMajority(untilMs, (client) => appendHistory(client, key, stored));
  }

  /** The newest entries of all servers that reply, which are at least a majority; the newest entry first. */
  async read(key: string, timeouts: Timeouts): Promise<readonly string[]> {
    const untilMs = await this.#waitUntilReady(timeouts);
    const lists = await this.#runOnMajority(untilMs, (client) => readHistory(client, key));
    const stored = [...new Set(lists.flat())].sort().reverse().slice(0, MAX_HISTORY_ENTRIES);
    return stored.map((entry) => entry.split(' ').slice(2).join(' '));
  }

  /** Returns when the time is up. */
  async #waitUntilReady(timeouts: Timeouts): Promise<number> {
    const untilMs = systemClock.monotonicMs() + timeouts.timeoutMs;
    await this.#servers.waitUntilReady(timeouts);
    return untilMs;
  }

  /**
   * Runs on all servers, and returns the results of the majority that is first.
   *
   * @throws the reason why fewer than a majority replied in time
   */
  async #runOnMajority<T>(untilMs: number, run: (client: ScriptRunner) => Promise<T>): Promise<readonly T[]> {
    const { all, needed } = this.#servers;
    const results: T[] = [];
    let refusal: Error | undefined;
    const majority = new Promise<void>((resolve) => {
      const running = all.map(async (server) => {
        try {
          results.push(await server.withClient(run));
        } catch (cause) {
          if (server.hasVote)
            refusal = new Error(`${server.name} refused: ${formatReason(cause)}`, { cause });
        }
        if (results.length === needed) resolve();
      });
      void Promise.all(running).then(() => resolve());
    });
    const leftMs = untilMs - systemClock.monotonicMs();
    await withTimeout(systemClock, leftMs, majority, { awaited: true });
    if (results.length < needed) throw refusal ?? this.#servers.noMajorityResult(leftMs).cause;
    return [...results];
  }
}
