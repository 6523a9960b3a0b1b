import type { BenchName } from './bench.js';
import type { StoreName } from './contender.js';
import type { Cell, Results } from './results.js';
import { sum } from './statistics.js';

/** What a table must let one check. */
interface Goal {
  readonly bench: BenchName;
  readonly title: string;
  readonly limit: { readonly atLeast: number } | { readonly atMost: number };
  /** Undefined where it was not measured. */
  figure(results: Results): number | undefined;
}

type Place = Omit<Cell, 'contender' | 'profile'>;

const ours = (place: Place): Cell => ({ ...place, contender: 'ours', profile: 'default' });
const floor = (place: Place, contender: string): Cell => ({ ...place, contender, profile: 'default' });

const least = (values: readonly (number | undefined)[]) => edge(values, Math.min);
const most = (values: readonly (number | undefined)[]) => edge(values, Math.max);

function edge(values: readonly (number | undefined)[], pick: (...values: number[]) => number) {
  const known = values.filter((value) => value !== undefined);
  return known.length > 0 ? pick(...known) : undefined;
}

/** Against each peer, in the profile in which it does best there. */
const againstPeers = (results: Results, place: Place, ratio: (peer: Cell) => number | undefined) => {
  const { figure, ...line } = place;
  return results.lines({ ...line, kind: 'peer' }).map(({ contender, profile }) => {
    return ratio({ ...line, contender, profile, figure });
  });
};

/** How many times as much as the peer that has most. */
const timesPeers =
  (place: Place, oursPlace = place) =>
  (results: Results) =>
    least(againstPeers(results, place, (peer) => results.ratio(ours(oursPlace), peer)));

/** How many times as fast as the fastest peer. */
const fasterThanPeers = (place: Place) => (results: Results) =>
  least(againstPeers(results, place, (peer) => results.ratio(peer, ours(place))));

/** How many times the figure of the peer that has least. */
const timesLeanest = (place: Place) => (results: Results) =>
  most(againstPeers(results, place, (peer) => results.ratio(ours(place), peer)));

const timesFloor = (place: Place, contender: string) => (results: Results) =>
  results.ratio(ours(place), floor(place, contender));

const median = (place: Place) => (results: Results) => results.median(ours(place));

/** In no turn of any case may it be more. */
const worst = (bench: BenchName, figure: string) => (results: Results) =>
  most(results.lines({ bench, contender: 'ours' }).flatMap((line) => results.values({ ...line, figure })));

/** A median hides turns that failed; undefined where we took no part. */
const failures = (bench: BenchName) => (results: Results) => {
  const lines = results.lines({ bench, contender: 'ours' });
  if (lines.length === 0) return undefined;
  return sum(lines.flatMap((line) => [...results.failures(line).values()]));
};

const FLOORS: readonly (readonly [StoreName, string])[] = [
  ['redis', 'plain ioredis'],
  ['postgres', 'plain pg'],
  ['mariadb', 'plain mysql2'],
  ['sqlite', 'plain better-sqlite3'],
];

const alone = (store: StoreName, figure = 'perSecond'): Place => ({
  bench: 'B1',
  caseName: 'alone',
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
  ...FLOORS.flatMap(([store, contender]): Goal[] => [
    {
      bench: 'B1',
      title: `${store}: acquire + release, × ${contender}`,
      limit: { atLeast: 0.95 },
      figure: timesFloor(alone(store), contender),
    },
    {
      bench: 'B1',
      title: `${store}: acquire + release, × the fastest peer`,
      limit: { atLeast: 1 },
      figure: timesPeers(alone(store)),
    },
  ]),
  ...(['redis', 'postgres'] as const).map((store): Goal => ({
    bench: 'B1',
    title: `${store}: withLock, × the fastest peer`,
    limit: { atLeast: 1.5 },
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
  ...['100 callers', '1000 callers'].flatMap((caseName): Goal[] => [
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
  ...(['B3', 'B4', 'B9'] as const).map((bench): Goal => ({
    bench,
    title: 'the most holders at once, ever',
    limit: { atMost: 1 },
    figure: worst(bench, 'holdersAtOnce'),
  })),
  {
    bench: 'B5',
    title: 'redis: × a bare grant by publish',
    limit: { atMost: 1.2 },
    figure: timesFloor(at('B5', 'hand-on', 'medianMs'), 'bare grant by publish'),
  },
  {
    bench: 'B5',
    title: 'postgres: × bare LISTEN/NOTIFY',
    limit: { atMost: 1.5 },
    figure: timesFloor(at('B5', 'hand-on', 'medianMs', 'postgres'), 'bare LISTEN/NOTIFY'),
  },
  {
    bench: 'B6',
    title: '10,000 locks: store calls/s',
    limit: { atMost: 40 },
    figure: median(at('B6', '10,000 locks', 'callsPerSecond')),
  },
  {
    bench: 'B6',
    title: '10,000 locks: CPU, × the leanest peer',
    limit: { atMost: 1 },
    figure: timesLeanest(at('B6', '10,000 locks', 'cpuSecondsPerMinute')),
  },
  ...['10,000 locks', '100,000 locks'].map((caseName): Goal => ({
    bench: 'B6',
    title: `${caseName}: lost, in any turn`,
    limit: { atMost: 0 },
    figure: (results) => most(results.values(ours(at('B6', caseName, 'lost')))),
  })),
  ...['alone', '64 callers'].flatMap((caseName): Goal[] => [
    {
      bench: 'B7',
      title: `${caseName}: × the fastest peer`,
      limit: { atLeast: 1 },
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
  ...(['B1', 'B2', 'B3', 'B4', 'B5', 'B6', 'B7', 'B8', 'B9', 'B10'] as const).map((bench): Goal => ({
    bench,
    title: 'failures of ours, in all turns',
    limit: { atMost: 0 },
    figure: failures(bench),
  })),
];

export const isMet = ({ limit }: Goal, figure: number): boolean =>
  'atLeast' in limit ? figure >= limit.atLeast : figure <= limit.atMost;
