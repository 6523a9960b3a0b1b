import { randomBytes } from 'node:crypto';
import { MAX_HISTORY_ENTRIES } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { formatReason } from '../../../core/format.js';
import { withTimeout } from '../../../core/requests/store-timeout.js';
import { appendHistory, readHistory } from '../run-history.js';
import type { ScriptRunner } from '../script-runner.js';
import { fixedWidth } from './server-call.js';
import { type QuorumServers, type Timeouts, limitsBeforeRequest } from './servers/quorum-servers.js';

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
    let stored: string | undefined;
    await this.#runOnMajority(timeouts, (client) =>
      // Only now are the clocks of the servers known.
      appendHistory(client, key, (stored ??= this.#toStored(text))),
    );
  }

  /** The newest entries of the first majority that replies, the newest first. */
  async read(key: string, timeouts: Timeouts): Promise<readonly string[]> {
    const lists = await this.#runOnMajority(timeouts, (client) => readHistory(client, key));
    const stored = [...new Set(lists.flat())].sort().reverse().slice(0, MAX_HISTORY_ENTRIES);
    return stored.map((entry) => entry.split(' ').slice(2).join(' '));
  }

  #toStored(text: string): string {
    this.#count += 1;
    return `${fixedWidth(this.#servers.ballots.nextUs(0))} ${this.#session}:${this.#count} ${text}`;
  }

  /**
   * Runs on all servers. Returns the results of the first majority whose votes count.
   *
   * @throws the reason why fewer than a majority replied in time
   */
  async #runOnMajority<T>(
    timeouts: Timeouts,
    run: (client: ScriptRunner) => Promise<T>,
  ): Promise<readonly T[]> {
    const { all, needed } = this.#servers;
    const untilMs = systemClock.monotonicMs() + timeouts.timeoutMs;
    await this.#servers.waitUntilReady(limitsBeforeRequest(timeouts));
    const sentAtMs = systemClock.monotonicMs();
    const leftMs = untilMs - sentAtMs;
    if (leftMs <= 0 || this.#servers.voting < needed)
      throw this.#servers.noMajorityResult(timeouts.timeoutMs, false).cause;
    const results: T[] = [];
    let refusal: Error | undefined;
    const majority = new Promise<void>((resolve) => {
      const running = all.map(async (server) => {
        try {
          const result = await server.withClient(run);
          if (server.hasVoteSince(sentAtMs)) results.push(result);
        } catch (cause) {
          if (server.hasVote && server.isReachable)
            refusal = new Error(`${server.name} refused: ${formatReason(cause)}`, { cause });
        }
        if (results.length === needed) resolve();
      });
      void Promise.all(running).then(() => resolve());
    });
    await withTimeout(systemClock, leftMs, majority, { awaited: true });
    if (results.length < needed) throw refusal ?? this.#servers.noMajorityResult(timeouts.timeoutMs).cause;
    return [...results];
  }
}
