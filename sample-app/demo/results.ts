import { LEASE_MS } from '../locks/lock.options.js';
import { CATALOGUE, STOCK } from './catalogue.js';
import type { OrderResponse } from './customers.js';
import type { DispatchCount } from './dispatches.js';
import type { Outcome } from './replica.js';
import type { Kill, Sale } from './sale.js';
import type { TickCount } from './ticks.js';
import type { ShopRecords } from './warehouse.js';

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
export function saleResults({ responses, kill }: Sale, books: ShopRecords): Result[] {
  const sold = books.orders.length;
  const acknowledged = count(responses, 'accepted');
  const unanswered = sold - acknowledged;
  const cutOff = count(responses, 'cut off');
  const cutOffByKill = count(responsesOf(kill.replica, responses), 'cut off');
  const oversold = oversoldIn(books);
  return [
    ...orderLines(responses),
    line('  accepted', sold, {
      text: unanswered === 0 ? 'as many as were told so' : `${acknowledged} told so, ${unanswered} cut off`,
      holds: unanswered >= 0 && unanswered <= cutOff,
    }),
    line('  refused: sold out', count(responses, 'refused')),
    line('  cut off by the kill', cutOff, {
      text: 'only at the killed replica',
      holds: cutOff === cutOffByKill,
    }),
    line('  failed', count(responses, 'failed'), mustBeNone(count(responses, 'failed'))),
    line('Stock left', stockLeft(books), { text: 'start minus accepted', holds: doesStockAddUp(books) }),
    line('Oversold', oversold, mustBeNone(oversold)),
  ];
}

/** What the sale did to the stock where nobody locked it. */
export function unlockedSaleResults(responses: readonly OrderResponse[], books: ShopRecords): Result[] {
  const oversold = oversoldIn(books);
  return [
    ...orderLines(responses),
    line('  accepted', books.orders.length),
    line('  refused: sold out', count(responses, 'refused')),
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

export function killResults({ releasedAfterMs, ledAfterMs }: Kill): Result[] {
  return [
    line('Lock of the killed free after', ...withinLease(releasedAfterMs, SLACK_MS)),
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

const orderLines = (responses: readonly OrderResponse[]) => [
  line('Items at the start', STOCK),
  line('Orders', responses.length),
];

const count = (responses: readonly OrderResponse[], outcome: Outcome) =>
  responses.filter((response) => response.outcome === outcome).length;

const responsesOf = (name: string, responses: readonly OrderResponse[]) =>
  responses.filter(({ replica }) => replica === name);

const stockLeft = ({ products }: ShopRecords) => products.reduce((sum, { stock }) => sum + stock, 0);

const doesStockAddUp = (books: ShopRecords) =>
  books.products.every(({ name, stock }) => stock === stockOf(name) - soldOf(name, books));

const oversoldIn = (books: ShopRecords) =>
  books.products.reduce((sum, { name }) => sum + Math.max(soldOf(name, books) - stockOf(name), 0), 0);

const stockOf = (product: string) => CATALOGUE[product] ?? 0;

const soldOf = (name: string, { orders }: ShopRecords) =>
  orders.filter(({ product }) => product === name).length;
