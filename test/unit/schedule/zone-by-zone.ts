/** For each change of clocks of a year, one expression in turn, with a job started at each hour around it. Prints JSON. */
import { EXPRESSIONS, clockChanges, compare } from './clock-changes.js';

const HOUR_MS = 60 * 60 * 1_000;

const found = clockChanges(Number(process.argv[2])).map((change, turn) => {
  const { starts, wrong } = compare(change, EXPRESSIONS[turn % EXPRESSIONS.length]!, HOUR_MS);
  return { starts, wrong };
});
console.log(JSON.stringify(found));
