import Table from 'cli-table3';
import type { Bench, Column } from './bench.js';
import { isMet } from './goal.js';
import { goals } from './goals.js';
import type { Cell, Line, Results } from './results.js';

/** All that was measured, as text: a table for each case on each store, and then the goals. */
export function report(results: Results, benches: readonly Bench[]): string {
  return [...benches.map((bench) => reportBench(results, bench)), reportGoals(results, benches)].join('\n');
}

/** What stands above the tables of a bench. */
const heading = ({ name, title, better }: Bench) => `\n== ${name}  ${title} (${better} is better)`;

function reportBench(results: Results, bench: Bench): string {
  const lines = results.lines({ bench: bench.name });
  const groups = new Set(lines.map(({ caseName, store }) => `${store}: ${caseName}`));
  const tables = [...groups].map((group) => {
    const members = lines.filter(({ caseName, store }) => `${store}: ${caseName}` === group);
    return `\n${group}\n${tableOf(results, bench, members)}`;
  });
  return [heading(bench), ...tables, ...formatUncaughtErrors(results, lines)].join('\n');
}

function tableOf(results: Results, bench: Bench, lines: readonly Line[]): string {
  const [main] = bench.columns;
  const of = (line: Line) => results.median(cellOf(line, main));
  const worst = bench.better === 'more' ? -Infinity : Infinity;
  const order = bench.better === 'more' ? -1 : 1;
  const sorted = [...lines].sort((a, b) => {
    const difference = (of(a) ?? worst) - (of(b) ?? worst);
    return Number.isNaN(difference) ? 0 : difference * order;
  });
  const columns = bench.columns.filter((column) =>
    lines.some((line) => results.median(cellOf(line, column)) !== undefined),
  );
  const table = new Table({
    head: ['', ...columns.map(({ title }) => title), 'ours is'],
    colAligns: ['left', ...columns.map(() => 'right' as const), 'right'],
    style: { head: [], border: [], compact: true },
  });
  for (const line of sorted) {
    const cells = columns.map((column) => formatNumber(results.median(cellOf(line, column)), column.digits));
    table.push([nameOf(line), ...cells, ratioToOurs(results, bench, line)]);
    for (const [failure, count] of results.failures(line))
      table.push([{ content: `  ${count} × failed: ${failure}`, colSpan: columns.length + 2 }]);
  }
  return table.toString();
}

/** How many times as good as this line we are. */
function ratioToOurs(results: Results, { columns: [main], better }: Bench, line: Line): string {
  if (line.kind === 'ours') return '';
  const here = cellOf(line, main);
  const ours = { ...here, contender: 'ours', profile: 'default' } as const;
  const ratio = better === 'more' ? results.ratio(ours, here) : results.ratio(here, ours);
  return ratio === undefined ? '–' : `${formatNumber(ratio, 2)} ×`;
}

function reportGoals(results: Results, benches: readonly Bench[]): string {
  const table = new Table({
    head: ['', 'goal', 'limit', 'figure', ''],
    colAligns: ['left', 'left', 'right', 'right', 'left'],
    style: { head: [], border: [], compact: true },
  });
  for (const goal of benches.flatMap(({ name }) => goals.filter(({ bench }) => bench === name))) {
    const figure = goal.figure(results);
    const limit = 'atLeast' in goal.limit ? `≥ ${goal.limit.atLeast}` : `≤ ${goal.limit.atMost}`;
    const verdict = figure === undefined ? 'not measured' : isMet(goal, figure) ? 'met' : 'NOT MET';
    table.push([goal.bench, goal.title, limit, formatNumber(figure, 2), verdict]);
  }
  return `\n== Goals\n${table.toString()}`;
}

function formatUncaughtErrors(results: Results, lines: readonly Line[]): string[] {
  return lines.flatMap((line) =>
    [...results.uncaughtErrors(line)].map(
      ([text, count]) =>
        `${line.caseName}, ${nameOf(line)}: ${count} × an error that nobody can catch: ${text}`,
    ),
  );
}

const cellOf = ({ bench, caseName, store, contender, profile }: Line, { figure }: Column): Cell => ({
  bench,
  caseName,
  store,
  contender,
  profile,
  figure,
});

const nameOf = ({ contender, profile }: Line) => (profile === 'tuned' ? `${contender}, tuned` : contender);

const formatNumber = (value: number | undefined, digits = 0): string =>
  value === undefined
    ? '–'
    : value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
