import { setTimeout as sleep } from 'node:timers/promises';
import type { Report } from '../report/report.entity.js';
import type { Kill } from './sale.js';

/** The report job runs each second. */
const PERIOD_MS = 1_000;
const ENOUGH_TICKS = 10;

/** For how long the shop was open with all its replicas up at first, and at least two to the end. */
export interface Opening {
  readonly firstTickMs: number;
  readonly lastTickMs: number;
}

export interface TickCount {
  readonly due: number;
  readonly run: number;
  readonly twice: number;
  /** Whether the one tick that did not run is that of the kill, so that the killed replica may have taken it along. */
  readonly isOneLost: boolean;
}

export const nextTickMs = () => Math.ceil(Date.now() / PERIOD_MS) * PERIOD_MS;

/** Waits for enough ticks; resolves between two of them, when the last one has long run. */
export async function stayOpen(firstTickMs: number, signal: AbortSignal): Promise<Opening> {
  const lastTickMs = Math.max(nextTickMs(), firstTickMs + (ENOUGH_TICKS - 1) * PERIOD_MS);
  console.log(`The report and the crontab go on, until ${ENOUGH_TICKS} or more were due.`);
  await sleep(lastTickMs + PERIOD_MS / 2 - Date.now(), undefined, { signal });
  return { firstTickMs, lastTickMs };
}

export function countTicks(reports: readonly Report[], opening: Opening, kill: Kill): TickCount {
  const ran = reports.map(({ tick }) => Date.parse(tick));
  const due = ticksIn(opening, PERIOD_MS);
  const missing = due.filter((tickMs) => !ran.includes(tickMs));
  const tickOfKillMs = Math.floor(kill.atMs / PERIOD_MS) * PERIOD_MS;
  return {
    due: due.length,
    run: due.length - missing.length,
    twice: ran.length - new Set(ran).size,
    isOneLost: missing.length === 1 && missing[0] === tickOfKillMs,
  };
}

/** The whole multiples of a period, the ends included. */
export function ticksIn({ firstTickMs, lastTickMs }: Opening, periodMs: number): readonly number[] {
  const first = Math.ceil(firstTickMs / periodMs);
  const last = Math.floor(lastTickMs / periodMs);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * periodMs);
}
