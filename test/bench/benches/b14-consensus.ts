import { type Bench, type Case, LEASE_MS } from '../bench.js';
import { COLUMNS, callOnOwnKeys, figuresOf } from '../own-keys.js';
import type { Session } from '../contender.js';
import { times } from '../statistics.js';

interface Locking extends Case {
  /** In each process. */
  readonly callers: number;
  readonly hasOneKey: boolean;
  readonly forMs: number;
  /** The code of all contenders is compiled by then, however much of it there is. */
  readonly warmUpMs: number;
}

interface LockingReply {
  readonly tookMs: readonly number[];
  /** In this process. */
  readonly holdersAtOnce: number;
}

/** A single caller on keys of its own, and callers that all want one key and do nothing with it. */
export const b14: Bench<Locking, Locking, LockingReply> = {
  name: 'B14',
  title: 'etcd and ZooKeeper: acquire and release, alone and with many callers of one key',
  columns: [...COLUMNS, { figure: 'holdersAtOnce', title: 'holders at once in a process' }],
  better: 'more',
  leaseMs: LEASE_MS,
  isPinned: true,
  timeoutMs: 60_000,
  takesPart: ({ store }) => store === 'etcd' || store === 'zookeeper',
  cases: ({ profile, isQuick }) => {
    // The peer does not wait, so there is nothing to tune.
    if (profile === 'tuned') return [];
    const forMs = isQuick ? 1_000 : 4_000;
    return [
      { ...ALONE, ...(isQuick && { rounds: 2, warmUpMs: forMs }) },
      ...CROWDS.map((crowd) => ({ ...crowd, hasOneKey: true, forMs, warmUpMs: forMs })),
    ];
  },
  warmUp: (workers, oneCase) => workers.askAll({ ...oneCase, forMs: oneCase.warmUpMs }),
  async measure(workers, oneCase) {
    const replies = await workers.askAll(oneCase);
    const { perSecond, ...rest } = figuresOf(
      replies.flatMap(({ tookMs }) => tookMs),
      oneCase.forMs,
    );
    return { perSecond, ...rest, holdersAtOnce: Math.max(...replies.map((reply) => reply.holdersAtOnce)) };
  },
  work: (session) => (request) => callFor(session, request),
};

const ALONE = {
  ...{ name: 'alone', processes: 1, callers: 1, hasOneKey: false },
  ...{ rounds: 30, keepsCoresAwake: true, forMs: 500, warmUpMs: 40_000 },
};
const CROWDS = [
  { name: '64 callers of one key', processes: 1, callers: 64 },
  { name: '4 processes, 16 callers each, of one key', processes: 4, callers: 16 },
];

async function callFor(session: Session, { callers, hasOneKey, forMs }: Locking): Promise<LockingReply> {
  const endMs = performance.now() + forMs;
  const tookMs: number[] = [];
  if (!hasOneKey) {
    const onTurn = (askedMs: number, doneMs: number) => void tookMs.push(doneMs - askedMs);
    await callOnOwnKeys(session, { callers, endMs, onTurn });
    return { tookMs, holdersAtOnce: 1 };
  }
  let [holders, holdersAtOnce] = [0, 0];
  const caller = async () => {
    for (let askedMs = performance.now(); askedMs < endMs; askedMs = performance.now()) {
      const held = await session.acquire('one');
      holders += 1;
      holdersAtOnce = Math.max(holdersAtOnce, holders);
      // Others get the chance to enter, where they should not.
      await Promise.resolve();
      holders -= 1;
      await held.release();
      const doneMs = performance.now();
      if (doneMs <= endMs) tookMs.push(doneMs - askedMs);
    }
  };
  await Promise.all(times(callers, caller));
  return { tookMs, holdersAtOnce };
}
