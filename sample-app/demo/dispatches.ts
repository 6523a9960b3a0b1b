import type { CrontabJob } from '../dispatch/crontab-job.entity.js';
import type { Dispatch } from '../dispatch/dispatch.entity.js';
import { tickAfter } from '../dispatch/tick-after.js';
import { JOBS } from './catalogue.js';
import type { Kill } from './sale.js';
import { type Opening, ticksIn } from './ticks.js';

export interface DispatchCount {
  readonly due: number;
  readonly dueWhileNobodyLed: number;
  readonly leftOut: number;
  readonly twice: number;
  /** Written by a leader when one of a newer term had written already. */
  readonly outOfTerm: number;
  readonly terms: number;
}

/** The crontab as it is before the first replica starts. */
export const newCrontab = (): CrontabJob[] =>
  Object.entries(JOBS).map(([name, everySeconds]) => {
    const expression = `*/${everySeconds} * * * * *`;
    return { name, expression, nextTick: tickAfter(expression, new Date()) };
  });

export function countDispatches(
  dispatches: readonly Dispatch[],
  opening: Opening,
  { atMs, ledAfterMs }: Kill,
): DispatchCount {
  const dispatched = dispatches.map(({ job, tick }) => nameOf(job, Date.parse(tick)));
  const dueIn = (open: Opening) =>
    Object.entries(JOBS).flatMap(([job, everySeconds]) =>
      ticksIn(open, everySeconds * 1_000).map((tickMs) => nameOf(job, tickMs)),
    );
  const due = dueIn(opening);
  const terms = dispatches.map(({ term }) => BigInt(term));
  return {
    due: due.length,
    dueWhileNobodyLed: dueIn({ firstTickMs: atMs, lastTickMs: atMs + ledAfterMs }).length,
    leftOut: due.filter((name) => !dispatched.includes(name)).length,
    twice: dispatched.length - new Set(dispatched).size,
    outOfTerm: terms.filter((term, index) => term < (terms[index - 1] ?? term)).length,
    terms: new Set(terms).size,
  };
}

const nameOf = (job: string, tickMs: number) => `${job} at ${tickMs}`;
