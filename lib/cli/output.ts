import { stripVTControlCharacters } from 'node:util';
import { CONTROL_CHARACTERS } from '../core/format.js';

/** Where the text of a command goes. */
export interface Output {
  /** For the result. */
  print(text: string): void;
  /** For everything else, so that the result can be piped. */
  warn(text: string): void;
}

type Cell = string | number | bigint | null | undefined;

/** Formats rows as aligned columns. The first row has the names of the columns. */
export function formatTable(rows: readonly (readonly Cell[])[]): string {
  const texts = rows.map((row) => row.map(formatCell));
  const widthOf = (column: number) =>
    texts.reduce((widest, row) => Math.max(widest, row[column]?.length ?? 0), 0);
  const widths = texts[0]?.map((_, column) => widthOf(column)) ?? [];
  const lines = texts.map((row) => widths.map((width, column) => (row[column] ?? '').padEnd(width)));
  return lines.map((cells) => cells.join('  ').trimEnd()).join('\n');
}

/** Keys and messages come from outside: they must neither steer the terminal nor break a line. */
const formatCell = (cell: Cell): string =>
  stripVTControlCharacters(String(cell ?? '-')).replace(CONTROL_CHARACTERS, '\uFFFD');
