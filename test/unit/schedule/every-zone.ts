/**
 * Every zone of this runtime, every expression, jobs started at each quarter of an hour. Of zones that change their clocks at
 * the same instants by the same amount, one is tested for all.
 *
 *     node --import @swc-node/register/esm-register test/unit/schedule/every-zone.ts [year …]
 */
import { EXPRESSIONS, clockChanges, compare } from './clock-changes.js';

const years = process.argv.slice(2).map(Number);
const began = Date.now();
for (const year of years.length > 0 ? years : [2026]) {
  const changes = clockChanges(year);
  const zones = clockChanges(year, { isEach: true });
  const sum = { starts: 0, firings: 0, besidesPlan: 0, wrong: 0 };
  for (const change of changes) {
    for (const expression of EXPRESSIONS) {
      const { starts, firings, besidesPlan, wrong } = compare(change, expression);
      sum.starts += starts;
      sum.firings += firings;
      sum.besidesPlan += besidesPlan;
      sum.wrong += wrong.length;
      for (const line of wrong.slice(0, 3)) console.log(line);
    }
  }
  console.log({
    year,
    ofZones: zones.length,
    changes: changes.length,
    expressions: EXPRESSIONS.length,
    ...sum,
  });
  if (sum.wrong > 0) process.exitCode = 1;
}
console.log(`${Math.round((Date.now() - began) / 1000)} s`);
