import Table from 'cli-table3';

export type Cell = string | number | undefined;

export function plainTable(rows: readonly (readonly Cell[])[], head: readonly string[] = []): string {
  const table = new Table({ head: [...head], style: { head: [], border: [], compact: true } });
  table.push(...rows.map((row) => row.map((cell) => cell ?? '')));
  return table.toString();
}
