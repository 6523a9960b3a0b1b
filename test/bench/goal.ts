import type { BenchName } from './bench.js';
import type { Cell, Results } from './results.js';
import { sum } from './statistics.js';

/** What a table must let one check. */
export interface Goal {
  readonly bench: BenchName;
  readonly title: string;
  readonly limit: { readonly atLeast: number } | { readonly atMost: number };
  /** Undefined where it was not measured. */
  figure(results: Results): number | undefined;
}

export type Place = Omit<Cell, 'contender' | 'profile'>;

export const ours = (place: Place): Cell => ({ ...place, contender: 'ours', profile: 'default' });
const floor = (place: Place, contender: string): Cell => ({ ...place, contender, profile: 'default' });

const least = (values: readonly (number | undefined)[]) => edge(values, Math.min);
export const most = (values: readonly (number | undefined)[]) => edge(values, Math.max);

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
export const timesPeers =
  (place: Place, oursPlace = place) =>
  (results: Results) =>
    least(againstPeers(results, place, (peer) => results.ratio(ours(oursPlace), peer)));

/** How many times as fast as the fastest peer. */
export const fasterThanPeers = (place: Place) => (results: Results) =>
  least(againstPeers(results, place, (peer) => results.ratio(peer, ours(place))));

/** How many times the figure of the peer that has least. */
export const timesLeanest = (place: Place) => (results: Results) =>
  most(againstPeers(results, place, (peer) => results.ratio(ours(place), peer)));

export const timesFloor = (place: Place, contender: string) => (results: Results) =>
  results.ratio(ours(place), floor(place, contender));

export const median = (place: Place) => (results: Results) => results.median(ours(place));

/** In no turn of any case may it be more. */
export const worst = (bench: BenchName, figure: string) => (results: Results) =>
  most(results.lines({ bench, contender: 'ours' }).flatMap((line) => results.values({ ...line, figure })));

/** A median hides turns that failed; undefined where we took no part. */
export const failures = (bench: BenchName) => (results: Results) => {
  const lines = results.lines({ bench, contender: 'ours' });
  if (lines.length === 0) return undefined;
  return sum(lines.flatMap((line) => [...results.failures(line).values()]));
};

export const isMet = ({ limit }: Goal, figure: number): boolean =>
  'atLeast' in limit ? figure >= limit.atLeast : figure <= limit.atMost;
