import { LEASE_MS } from '../locks/lock.options.js';
import { CATALOGUE, STOCK } from './catalogue.js';
import type { Answer } from './customers.js';
import type { DispatchCount } from './dispatches.js';
import type { Outcome } from './replica.js';
import type { Kill, Sale } from './sale.js';
import type { TickCount } from './ticks.js';
import type { Books } from './warehouse.js';

/** A line of the table. */
export interface Result {
  readonly what: string;
  readonly found: string;
  /** Missing where the number only informs. */
  readonly expected?: Expected;
}

interface Expected {
  readonly text: string;
  readonly holds: boolean;
}

/** So much longer than its lease a dead holder's lock may be out of use. */
const SLACK_MS = 500;
/** Who waits for the leadership may look for it late, and has to find its place in the crontab. */
const TAKE_OVER_SLACK_MS = 1_000;

/** What the sale did to the stock, where locks kept it in order. */
export function saleResults({ answers, kill }: Sale, books: Books): Result[] {
  const sold = books.orders.length;
  const told = count(answers, 'accepted');
  const unanswered = sold - told;
  const cutOff = count(answers, 'cut off');
  const cutOffByKill = count(answersOf(kill.replica, answers), 'cut off');
  const oversold = oversoldIn(books);
  return [
    ...orderLines(answers),
    line('  accepted', sold, {
      text: unanswered === 0 ? 'as many as were told so' : `${told} told so, ${unanswered} cut off`,
      holds: unanswered >= 0 && unanswered <= cutOff,
    }),
    line('  refused: sold out', count(answers, 'refused')),
    line('  cut off by the kill', cutOff, {
      text: 'only at the killed replica',
      holds: cutOff === cutOffByKill,
    }),
    line('  failed', count(answers, 'failed'), mustBeNone(count(answers, 'failed'))),
    line('Stock left', stockLeft(books), { text: 'start minus accepted', holds: doesStockAddUp(books) }),
    line('Oversold', oversold, mustBeNone(oversold)),
  ];
}

/** What the sale did to the stock where nobody locked it. */
export function unlockedSaleResults(answers: readonly Answer[], books: Books): Result[] {
  const oversold = oversoldIn(books);
  return [
    ...orderLines(answers),
    line('  accepted', books.orders.length),
    line('  refused: sold out', count(answers, 'refused')),
    line('Stock left, says the table', stockLeft(books)),
    line('Oversold', oversold, {
      text: 'more than 0: that is the point',
      holds: oversold > 0,
    }),
  ];
}

export function tickResults({ due, run, twice, isOneLost }: TickCount): Result[] {
  return [
    line('Ticks of the report due', due),
    line('  run', run, {
      text: isOneLost ? 'all but that of the killed' : 'all',
      holds: run === due || isOneLost,
    }),
    line('  run twice', twice, mustBeNone(twice)),
  ];
}

export function dispatchResults(count: DispatchCount): Result[] {
  return [
    line('Jobs of the crontab due', count.due),
    line('  while nobody led', count.dueWhileNobodyLed),
    line('  left out', count.leftOut, mustBeNone(count.leftOut)),
    line('  dispatched twice', count.twice, mustBeNone(count.twice)),
    line('  dispatched out of term', count.outOfTerm, mustBeNone(count.outOfTerm)),
    line('  terms', count.terms, { text: 'at least 2', holds: count.terms >= 2 }),
  ];
}

export function killResults({ freedAfterMs, ledAfterMs }: Kill): Result[] {
  return [
    line('Lock of the killed free after', ...withinLease(freedAfterMs, SLACK_MS)),
    line('Next leader dispatches after', ...withinLease(ledAfterMs, TAKE_OVER_SLACK_MS)),
  ];
}

/** Before the kill nobody else may have got in. */
const withinLease = (afterMs: number, slackMs: number): [string, Expected] => [
  `${Math.round(afterMs)} ms`,
  {
    text: `at most ${LEASE_MS + slackMs} ms (lease + ${slackMs})`,
    holds: afterMs > 0 && afterMs <= LEASE_MS + slackMs,
  },
];

const line = (what: string, found: number | string, expected?: Expected): Result => ({
  what,
  found: String(found),
  ...(expected && { expected }),
});

const mustBeNone = (found: number): Expected => ({ text: '0', holds: found === 0 });

const orderLines = (answers: readonly Answer[]) => [
  line('Items at the start', STOCK),
  line('Orders', answers.length),
];

const count = (answers: readonly Answer[], outcome: Outcome) =>
  answers.filter((answer) => answer.outcome === outcome).length;

const answersOf = (name: string, answers: readonly Answer[]) =>
  answers.filter(({ replica }) => replica === name);

const stockLeft = ({ products }: Books) => products.reduce((sum, { stock }) => sum + stock, 0);

const doesStockAddUp = (books: Books) =>
  books.products.every(({ name, stock }) => stock === stockOf(name) - soldOf(name, books));

const oversoldIn = (books: Books) =>
  books.products.reduce((sum, { name }) => sum + Math.max(soldOf(name, books) - stockOf(name), 0), 0);

const stockOf = (product: string) => CATALOGUE[product] ?? 0;

const soldOf = (name: string, { orders }: Books) => orders.filter(({ product }) => product === name).length;
