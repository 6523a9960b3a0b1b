import { type Bench, type Case, QUORUM_LEASE_MS, askOne } from '../bench.js';
import { CommandCount } from '../command-count.js';
import { COLUMNS, callOnOwnKeys, figuresOf } from '../own-keys.js';

interface OnQuorum extends Case {
  readonly callers: number;
  readonly forMs: number;
  readonly warmUpMs?: number;
}

/** Callers of one process on five independent servers, each again and again on a key of its own. */
export const b7: Bench<OnQuorum> = {
  name: 'B7',
  title: 'On a quorum of five Redis servers: acquire and release, each caller on a key of its own',
  columns: [...COLUMNS, { figure: 'commandsPerServer', title: 'commands a server/lock', digits: 2 }],
  better: 'more',
  leaseMs: QUORUM_LEASE_MS,
  isPinned: true,
  timeoutMs: 60_000,
  takesPart: ({ store }) => store === 'quorum',
  cases: ({ profile, isQuick }) => {
    // Nobody waits here, so there is nothing to tune.
    if (profile === 'tuned') return [];
    const rounds = isQuick ? { rounds: 2, warmUpMs: 1_000 } : { rounds: 12, warmUpMs: 10_000 };
    return [
      { name: 'alone, cold', processes: 1, callers: 1, forMs: isQuick ? 1_000 : 3_000 },
      { name: 'alone', processes: 1, callers: 1, forMs: 500, ...rounds },
      { name: '64 callers', processes: 1, callers: 64, forMs: 500, ...rounds },
    ];
  },
  async warmUp(workers, oneCase) {
    if (oneCase.warmUpMs !== undefined) await workers.ask(0, { ...oneCase, forMs: oneCase.warmUpMs });
  },
  measure: askOne,
  work: (session, { contender, setting }) => {
    const commands = new CommandCount(setting.stores.quorum[0]!, contender);
    return async ({ callers, forMs }) => {
      await commands.start();
      const endMs = performance.now() + forMs;
      const tookMs: number[] = [];
      const onTurn = (askedMs: number, doneMs: number) => tookMs.push(doneMs - askedMs);
      await callOnOwnKeys(session, { callers, endMs, onTurn });
      const commandsPerServer = (await commands.sinceStart()) / tookMs.length;
      return { ...figuresOf(tookMs, forMs), commandsPerServer };
    };
  },
};
