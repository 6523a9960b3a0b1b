import Table from 'cli-table3';
import type { Result } from './results.js';

/** Prints the results, and under them those that were not as expected; answers whether all were. */
export function print(results: readonly Result[]): boolean {
  const table = new Table({
    head: ['', 'found', 'expected', ''],
    colAligns: ['left', 'right', 'left', 'left'],
    style: { head: [], border: [], compact: true },
  });
  for (const { what, found, expected } of results)
    table.push([what, found, expected?.text ?? '', mark(expected)]);
  console.log(`\n${table.toString()}\n`);

  const failures = results.filter(({ expected }) => expected?.holds === false);
  for (const { what, found, expected } of failures) {
    console.error(`FAILED  ${what.trim()}: expected ${expected?.text ?? ''}, found ${found}`);
  }
  return failures.length === 0;
}

const mark = (expected: Result['expected']) => (expected ? (expected.holds ? '✓' : '✗') : '');
