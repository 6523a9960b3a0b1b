import { type Bench, type Case, QUORUM_LEASE_MS, askOne } from '../bench.js';
import { CommandCount } from '../command-count.js';
import { COLUMNS, callOnOwnKeys, figuresOf } from '../own-keys.js';
import { warmUp } from '../warm-up.js';

interface OnQuorum extends Case {
  readonly callers: number;
  readonly forMs: number;
}

/** So many until the engine has compiled what runs often, in a process that has one core. */
const WARM_LOCKS = 5_000;

/** Callers of one process on five independent servers, each again and again on a key of its own. */
export const b7: Bench<OnQuorum> = {
  name: 'B7',
  title: 'On a quorum of five Redis servers: acquire and release, each caller on a key of its own',
  columns: [...COLUMNS, { figure: 'commandsPerServer', title: 'commands a server/lock', digits: 2 }],
  better: 'more',
  leaseMs: QUORUM_LEASE_MS,
  isPinned: true,
  timeoutMs: 30_000,
  takesPart: ({ store }) => store === 'quorum',
  cases: ({ profile, isQuick }) =>
    // Nobody waits here, so there is nothing to tune.
    (profile === 'tuned' ? [] : [1, 64]).map((callers) => ({
      name: callers === 1 ? 'alone' : `${callers} callers`,
      processes: 1,
      callers,
      forMs: isQuick ? 1_000 : 3_000,
    })),
  measure: askOne,
  work: (session, { contender, setting }) => {
    const commands = new CommandCount(setting.stores.quorum[0]!, contender);
    return async ({ callers, forMs }) => {
      await warmUp(session, WARM_LOCKS);
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
