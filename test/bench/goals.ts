import { type BenchName, benchNames } from './bench.js';
import type { StoreName } from './contender.js';
import {
  type Goal,
  type Place,
  failures,
  fasterThanPeers,
  median,
  most,
  ours,
  timesFloor,
  timesLeanest,
  timesPeers,
  worst,
} from './goal.js';

/** The bare driver, and how many times as many locks as it a lone caller shall have. */
const FLOORS: readonly (readonly [StoreName, string, number])[] = [
  ['redis', 'plain ioredis', 0.95],
  ['postgres', 'plain pg', 1],
  ['mariadb', 'plain mysql2', 0.95],
  ['sqlite', 'plain better-sqlite3', 0.6],
];

/** The recipes of etcd and ZooKeeper, over the same clients as ours. */
const RECIPES: readonly (readonly [StoreName, string])[] = [
  ['etcd', 'etcd recipe'],
  ['zookeeper', 'Curator recipe'],
];

const alone = (store: StoreName, figure = 'perSecond', caseName = 'warm'): Place => ({
  bench: 'B1',
  caseName,
  store,
  figure,
});
const ownKeys = (store: StoreName, callers: number): Place => ({
  bench: 'B2',
  caseName: `${callers} callers`,
  store,
  figure: 'perSecond',
});
const at = (bench: BenchName, caseName: string, figure: string, store: StoreName = 'redis'): Place => ({
  bench,
  caseName,
  store,
  figure,
});

const CROWDED = '4 processes, 25 callers each';

export const goals: readonly Goal[] = [
  ...FLOORS.flatMap(([store, contender, atLeast]): Goal[] => [
    {
      bench: 'B1',
      title: `${store}: acquire + release, × ${contender}`,
      limit: { atLeast },
      figure: timesFloor(alone(store), contender),
    },
    ...['warm', 'cold'].map((caseName): Goal => ({
      bench: 'B1',
      title: `${store}, ${caseName}: acquire + release, × the fastest peer`,
      limit: { atLeast: 1 },
      figure: timesPeers(alone(store, 'perSecond', caseName)),
    })),
  ]),
  {
    bench: 'B1',
    title: 'redis, one core: acquire + release, × plain ioredis',
    limit: { atLeast: 0.8 },
    figure: timesFloor(alone('redis', 'perSecond', 'warm, one core'), 'plain ioredis'),
  },
  ...['warm, one core', 'cold, one core'].map((caseName): Goal => ({
    bench: 'B1',
    title: `redis, ${caseName}: acquire + release, × the fastest peer`,
    limit: { atLeast: 1 },
    figure: timesPeers(alone('redis', 'perSecond', caseName)),
  })),
  ...(
    [
      ['nodeCpuUs', 'Node', 1.2],
      ['redisCpuUs', 'Redis', 1.3],
    ] as const
  ).map(([figure, what, atMost]): Goal => ({
    bench: 'B1',
    title: `CPU of ${what}, × plain ioredis`,
    limit: { atMost },
    figure: timesFloor(alone('redis', figure), 'plain ioredis'),
  })),
  ...(
    [
      ['redis', 1.6],
      ['postgres', 1.5],
    ] as const
  ).map(([store, atLeast]): Goal => ({
    bench: 'B1',
    title: `${store}: withLock, × the fastest peer`,
    limit: { atLeast },
    figure: timesPeers(alone(store), alone(store, 'withLockPerSecond')),
  })),
  ...[64, 256].flatMap((callers): Goal[] => [
    ...(
      [
        ['redis', 2.5],
        ['postgres', 8],
        ['sqlite', 8],
        ['mariadb', 4],
      ] as const
    ).map(([store, atLeast]): Goal => ({
      bench: 'B2',
      title: `${store}, ${callers} callers: × the fastest peer`,
      limit: { atLeast },
      figure: timesPeers(ownKeys(store, callers)),
    })),
    {
      bench: 'B2',
      title: `redis, ${callers} callers: × plain ioredis`,
      limit: { atLeast: 2.5 },
      figure: timesFloor(ownKeys('redis', callers), 'plain ioredis'),
    },
    {
      bench: 'B2',
      title: `postgres, ${callers} callers: × plain pg`,
      limit: { atLeast: 4 },
      figure: timesFloor(ownKeys('postgres', callers), 'plain pg'),
    },
  ]),
  ...(
    [
      ['100 callers', 2.5],
      ['1000 callers', 3],
    ] as const
  ).flatMap(([caseName, atMost]): Goal[] => [
    {
      bench: 'B3',
      title: `${caseName}: time, × a bare local queue`,
      limit: { atMost },
      figure: timesFloor(at('B3', caseName, 'totalMs'), 'bare local queue'),
    },
    {
      bench: 'B3',
      title: `${caseName}: times as fast as the fastest peer`,
      limit: { atLeast: 100 },
      figure: fasterThanPeers(at('B3', caseName, 'totalMs')),
    },
    {
      bench: 'B3',
      title: `${caseName}: commands/acquisition`,
      limit: { atMost: 0.1 },
      figure: median(at('B3', caseName, 'commandsPerAcquisition')),
    },
  ]),
  {
    bench: 'B4',
    title: `${CROWDED}: total ÷ pure work`,
    limit: { atMost: 1.2 },
    figure: median(at('B4', CROWDED, 'overPureWork')),
  },
  {
    bench: 'B4',
    title: `${CROWDED}: commands/acquisition`,
    limit: { atMost: 0.5 },
    figure: median(at('B4', CROWDED, 'commandsPerAcquisition')),
  },
  {
    bench: 'B4',
    title: `${CROWDED}: longest wait ÷ median wait`,
    limit: { atMost: 2.2 },
    figure: median(at('B4', CROWDED, 'longestOverMedian')),
  },
  ...[4, 8, 16].map((processes): Goal => ({
    bench: 'B4',
    title: `${processes} processes, 1 caller each: commands/acquisition`,
    limit: { atMost: 3.1 },
    figure: median(at('B4', `${processes} processes, 1 caller each`, 'commandsPerAcquisition')),
  })),
  ...['50 callers in one process, 0 ms of work', '50 callers in each of 4 processes, 0 ms of work'].flatMap(
    (caseName): Goal[] => [
      {
        bench: 'B11',
        title: `${caseName}: times as fast as the fastest peer`,
        limit: { atLeast: 5 },
        figure: fasterThanPeers(at('B11', caseName, 'totalMs')),
      },
      {
        bench: 'B11',
        title: `${caseName}: commands, × the peer that sends least`,
        limit: { atMost: 0.2 },
        figure: timesLeanest(at('B11', caseName, 'commandsPerAcquisition')),
      },
    ],
  ),
  ...(['redis', 'postgres'] as const).flatMap((store) =>
    (
      [
        ['twoKeysTimes', '2 keys', 1.3],
        ['eightKeysTimes', '8 keys', 1.3],
        ['writeTimes', 'a write lock', 2],
      ] as const
    ).map(([figure, what, atMost]): Goal => ({
      bench: 'B12',
      title: `${store}: ${what}, × one lock`,
      limit: { atMost },
      figure: median(at('B12', 'alone', figure, store)),
    })),
  ),
  {
    bench: 'B12',
    title: 'redis: commands of a reader in a process that reads',
    limit: { atMost: 0.01 },
    figure: median(at('B12', 'alone', 'readCommands')),
  },
  ...(['B3', 'B4', 'B9', 'B11', 'B14'] as const).map((bench): Goal => ({
    bench,
    title: 'the most holders at once, ever',
    limit: { atMost: bench === 'B11' ? 5 : 1 },
    figure: worst(bench, 'holdersAtOnce'),
  })),
  {
    bench: 'B5',
    title: 'redis: × a bare grant by publish',
    limit: { atMost: 1.3 },
    figure: timesFloor(at('B5', 'hand-on', 'medianMs'), 'bare grant by publish'),
  },
  {
    bench: 'B5',
    title: 'postgres: × bare LISTEN/NOTIFY',
    limit: { atMost: 1.5 },
    figure: timesFloor(at('B5', 'hand-on', 'medianMs', 'postgres'), 'bare LISTEN/NOTIFY'),
  },
  ...RECIPES.map(([store, recipe]): Goal => ({
    bench: 'B5',
    title: `${store}: × ${recipe}`,
    limit: { atMost: 1.2 },
    figure: timesFloor(at('B5', 'hand-on', 'medianMs', store), recipe),
  })),
  {
    bench: 'B6',
    title: '10,000 locks: store calls/s',
    limit: { atMost: 40 },
    figure: median(at('B6', '10,000 locks', 'callsPerSecond')),
  },
  {
    bench: 'B6',
    title: '10,000 locks: CPU, × the leanest peer',
    limit: { atMost: 0.9 },
    figure: timesLeanest(at('B6', '10,000 locks', 'cpuSecondsPerMinute')),
  },
  ...['10,000 locks', '100,000 locks'].map((caseName): Goal => ({
    bench: 'B6',
    title: `${caseName}: lost, in any turn`,
    limit: { atMost: 0 },
    figure: (results) => most(results.values(ours(at('B6', caseName, 'lost')))),
  })),
  ...(
    [
      ['alone', 1],
      ['alone, cold', 1],
      ['64 callers', 3],
    ] as const
  ).flatMap(([caseName, atLeast]): Goal[] => [
    {
      bench: 'B7',
      title: `${caseName}: × the fastest peer`,
      limit: { atLeast },
      figure: timesPeers(at('B7', caseName, 'perSecond', 'quorum')),
    },
    {
      bench: 'B7',
      title: `${caseName}: times as fast as the fastest peer (median)`,
      limit: { atLeast: 1 },
      figure: fasterThanPeers(at('B7', caseName, 'medianUs', 'quorum')),
    },
    {
      bench: 'B7',
      title: `${caseName}: commands a server/lock`,
      limit: { atMost: 2 },
      figure: median(at('B7', caseName, 'commandsPerServer', 'quorum')),
    },
  ]),
  {
    bench: 'B8',
    title: 'bytes a held lock',
    limit: { atMost: 2_048 },
    figure: median(at('B8', 'held lock', 'bytes')),
  },
  {
    bench: 'B8',
    title: 'bytes a waiter',
    limit: { atMost: 1_024 },
    figure: median(at('B8', 'waiter', 'bytes')),
  },
  ...(['lockedUs', 'serviceUs'] as const).map((figure): Goal => ({
    bench: 'B10',
    title: `${figure === 'lockedUs' ? '@Locked' : 'LockService.withLock'}: µs on top of the core`,
    limit: { atMost: 5 },
    figure: median(at('B10', 'alone', figure, 'memory')),
  })),
  {
    bench: 'B10',
    title: 'metrics of OpenTelemetry: µs a lock',
    limit: { atMost: 5 },
    figure: median(at('B10', 'alone', 'metricsUs', 'memory')),
  },
  ...(
    [
      ['alone', 1],
      ['64 callers of one key', 3],
    ] as const
  ).flatMap(([caseName, atLeast]): Goal[] => [
    {
      bench: 'B14',
      title: `etcd: ${caseName}: × the fastest peer`,
      limit: { atLeast },
      figure: timesPeers(at('B14', caseName, 'perSecond', 'etcd')),
    },
    ...RECIPES.map(([store, recipe]): Goal => ({
      bench: 'B14',
      title: `${store}: ${caseName}: × ${recipe}`,
      limit: { atLeast },
      figure: timesFloor(at('B14', caseName, 'perSecond', store), recipe),
    })),
  ]),
  ...benchNames.map((bench): Goal => ({
    bench,
    title: 'failures of ours, in all turns',
    limit: { atMost: 0 },
    figure: failures(bench),
  })),
];
