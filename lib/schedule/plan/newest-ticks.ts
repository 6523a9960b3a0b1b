import type { Plan } from './plan.js';
import { type Tick, createTick } from './tick-calculator.js';

const MAX_TICKS = 100;

/** The newest planned ticks, at most 100, the oldest first. */
export function listNewestTicks(plan: Plan, nowMs: number): readonly Tick[] {
  const ticks: Tick[] = [];
  for (let tickMs = plan.latest(nowMs); tickMs !== undefined && ticks.length < MAX_TICKS;) {
    const tick = createTick(plan, tickMs);
    ticks.push(tick);
    tickMs = tickBefore(plan, tick);
  }
  return ticks.reverse();
}

/** Tries the period of the tick first, because that takes a tenth of the time. */
function tickBefore(plan: Plan, { tickMs, periodMs }: Tick): number | undefined {
  const guessMs = plan.next(tickMs - periodMs - 1);
  const isBefore = guessMs !== undefined && guessMs < tickMs && plan.next(guessMs) === tickMs;
  return isBefore ? guessMs : plan.latest(tickMs - 1);
}
