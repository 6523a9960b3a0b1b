import type { DriverName } from './messages.js';

/** A recipe of the documents, and how it is tried. */
export interface Recipe {
  readonly name: string;
  /** The class or the function that the block declares. */
  readonly declares: string;
  readonly driver: DriverName;
  /** Where the recipe keeps its data; `none` runs on each store of locks. */
  readonly data: 'none' | 'sql' | 'redis';
  /** Where the block is looked for. @default the README and all of docs/ */
  readonly documents?: readonly string[];
  /** Functions that run once, while the application starts: nothing comes by there again. */
  readonly runsOnce?: readonly string[];
  /** How many runs of a function by others show that they have taken over. */
  readonly takeovers: number;
}

const FIXTURES = 'test/faults/recipes/fixtures';

export const recipes: readonly Recipe[] = [
  { name: 'locking', declares: 'OrderService', driver: 'locking', data: 'none', takeovers: 2 },
  { name: 'fenced write', declares: 'Withdrawals', driver: 'fenced-write', data: 'sql', takeovers: 2 },
  {
    name: 'fenced write on Redis',
    declares: 'RedisWithdrawals',
    driver: 'fenced-write',
    data: 'redis',
    takeovers: 2,
  },
  { name: 'task claim', declares: 'workOn', driver: 'task-claim', data: 'sql', takeovers: 2 },
  { name: 'job', declares: 'Jobs', driver: 'job', data: 'none', takeovers: 1 },
  {
    name: 'job with retry',
    declares: 'Imports',
    driver: 'job',
    data: 'none',
    runsOnce: ['Imports.add'],
    takeovers: 1,
  },
  {
    name: 'leader',
    declares: 'Dispatcher',
    driver: 'leader',
    data: 'none',
    takeovers: 1,
  },
];

/** What the documents printed first: it loses updates, and so shows that the harness sees that. */
export const plainRead: Recipe = {
  name: 'fenced write after a plain read',
  declares: 'Withdrawals',
  driver: 'fenced-write',
  data: 'sql',
  documents: [`${FIXTURES}/plain-read.md`],
  takeovers: 2,
};
