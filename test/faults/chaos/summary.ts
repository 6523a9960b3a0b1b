import { type Cell, plainTable } from './plain-table.js';
import type { Tally } from './report.js';

type Numbers = Readonly<Record<string, number>>;

/** All kinds of stores in one table. */
export function formatSideBySide(tallies: readonly Tally[]): string {
  const columns = tallies.map(({ episodes, faults, nemeses, counts }): Numbers => {
    const faultCounts = nemeses.map(({ nemesis, count }) => [nemesis, count] as const);
    return { episodes, faults, ...Object.fromEntries(faultCounts), ...counts };
  });
  const names = [...new Set(columns.flatMap((column) => Object.keys(column)))];
  const rows = names.map((name): Cell[] => [
    name,
    ...columns.map((column) => column[name]),
    columns.reduce((sum, { [name]: number = 0 }) => sum + number, 0),
  ]);
  const minutes = Math.max(...tallies.map((tally) => tally.minutes)).toFixed(1);
  return [
    `== all, ${minutes} min`,
    plainTable(rows, ['', ...tallies.map(({ backend }) => backend), 'all']),
  ].join('\n');
}

/** What was wrong, and how to play it again. */
export function formatVerdict(tallies: readonly Tally[]): string {
  const red = tallies.flatMap((tally) => tally.red);
  if (red.length === 0) return 'All green.';
  const paragraphs = red.map(({ backend, what, command, folder }) =>
    [`${backend}: ${command}`, ...what, ...(folder ? [`The diaries are in ${folder}`] : [])].join('\n  '),
  );
  return [`${red.length} episodes were red:`, ...paragraphs].join('\n');
}
