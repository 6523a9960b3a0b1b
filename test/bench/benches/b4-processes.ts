import { type Bench, LEASE_MS } from '../bench.js';
import {
  type Asked,
  COLUMNS,
  type OneKey,
  type Told,
  measureOneKey,
  takesPart,
  workOnOneKey,
} from '../one-key.js';

const crowded: OneKey = { name: '4 processes, 25 callers each', processes: 4, callers: 25, rounds: 1 };

/** With one caller each, nothing can be handed on inside of a process: every acquisition goes to the store. */
const single = (processes: number, rounds: number): OneKey => ({
  name: `${processes} processes, 1 caller each`,
  processes,
  callers: 1,
  rounds,
});

export const b4: Bench<OneKey, Asked, Told> = {
  name: 'B4',
  title: 'Several processes, all for one key, 1 ms of work',
  columns: COLUMNS,
  better: 'less',
  leaseMs: LEASE_MS,
  limitMs: 90_000,
  takesPart,
  cases: ({ contender, profile, isQuick }) =>
    // With seconds between two tries, single callers only measure those seconds.
    contender.kind === 'peer' && profile === 'default'
      ? [crowded]
      : [crowded, ...[4, 8, 16].map((processes) => single(processes, isQuick ? 5 : 25))],
  measure: measureOneKey,
  work: workOnOneKey,
};
