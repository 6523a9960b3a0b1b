import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { CronTime } from 'cron';
import { execaNode } from 'execa';
import { createCronPlan } from '../../../lib/schedule/plan/plan.js';
import { TickCalculator } from '../../../lib/schedule/plan/tick-calculator.js';

const HOUR_MS = 60 * 60 * 1_000;
const DAY_MS = 24 * 60 * 60 * 1_000;

/** Expressions, zones and days on which the clocks there are set, with the hours in UTC at which they tick that day. */
const cases: [cronTime: string, timeZone: string, day: string, hours: number[]][] = [
  // 2:00 becomes 3:00 at 1:00 UTC: each existing hour is one tick.
  ['0 * * * *', 'Europe/Berlin', '2026-03-29', [0, 1, 2, 3]],
  ['*/30 * * * *', 'Europe/Berlin', '2026-03-29', [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]],
  // A time of day that does not exist: the cron package fires at the end of the skipped hour.
  ['30 2 * * *', 'Europe/Berlin', '2026-03-29', [1]],
  // 3:00 becomes 2:00 at 1:00 UTC: the hour that occurs twice is two ticks.
  ['0 * * * *', 'Europe/Berlin', '2026-10-25', [0, 1, 2, 3]],
  ['*/30 * * * *', 'Europe/Berlin', '2026-10-25', [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]],
  // A time of day that occurs twice: the cron package fires at the first.
  ['30 2 * * *', 'Europe/Berlin', '2026-10-25', [0.5]],
  // In the hour after a repeated hour, the cron package fires twice, once of them at 2:30.
  ['30 3 * * *', 'Europe/Berlin', '2026-10-25', [2.5]],
  ['0 3 * * *', 'Europe/Berlin', '2026-10-25', [2]],
  ['0 * * * *', 'America/New_York', '2026-03-08', [0, 1, 2, 3]],
  ['0 * * * *', 'America/New_York', '2026-11-01', [0, 1, 2, 3]],
  ['0 2 * * *', 'America/Sao_Paulo', '2026-03-29', []],
  // The clock changes by half an hour.
  ['0 * * * *', 'Australia/Lord_Howe', '2026-10-03', [0.5, 1.5, 2.5, 3.5]],
  ['30 * * * *', 'UTC', '2026-03-29', [0.5, 1.5, 2.5, 3.5]],
];

describe('where clocks change', () => {
  it.each(cases)('%j in %s on %s ticks at the hours %j', (cronTime, timeZone, day, hours) => {
    const plan = createCronPlan({ cronTime, timeZone });
    const from = Date.parse(`${day}T00:00:00Z`);
    const found: number[] = [];
    for (let at = plan.next(from - 1); at !== undefined && at < from + 4 * 3_600_000; at = plan.next(at)) {
      found.push((at - from) / 3_600_000);
      expect(plan.latest(at)).toBe(at);
      expect(plan.latest(at + 1)).toBe(at);
    }
    expect(found).toEqual(hours);
  });

  it.each(cases)('%j in %s around %s ticks when the cron package fires', (cronTime, timeZone, day) => {
    const plan = createCronPlan({ cronTime, timeZone });
    const time = new CronTime(cronTime, timeZone);
    const from = Date.parse(`${day}T00:00:00Z`) - DAY_MS / 2;
    const fired = new Set<number>();
    for (let at = from; at < from + 2.5 * DAY_MS;) {
      at = time.getNextDateFrom(new Date(at), timeZone).toMillis();
      fired.add(at);
    }
    for (let at = plan.next(from)!; at < from + 1.5 * DAY_MS; at = plan.next(at)!)
      expect(fired).toContain(at);
  });

  it('has no tick for a firing of the cron package at a time that the expression does not name', () => {
    const time = new CronTime('30 3 * * *', 'Europe/Berlin');
    const before = Date.parse('2026-10-24T20:00:00Z');
    const early = time.getNextDateFrom(new Date(before), 'Europe/Berlin').toMillis();
    expect(new Date(early).toISOString()).toBe('2026-10-25T01:30:00.000Z');
    const tracker = new TickCalculator(
      { plan: createCronPlan({ cronTime: '30 3 * * *', timeZone: 'Europe/Berlin' }) },
      before,
    );
    // The tick of the day before, which was claimed then.
    expect(tracker.calculateTick(early)?.tickMs).toBe(Date.parse('2026-10-24T01:30:00Z'));
    expect(tracker.calculateTick(early + HOUR_MS)?.tickMs).toBe(early + HOUR_MS);
  });

  it('never goes back, where the cron package does', () => {
    const plan = createCronPlan({ cronTime: '*/15 * * * *', timeZone: 'Australia/Lord_Howe' });
    const from = Date.parse('2026-04-04T14:00:00Z');
    let at = from;
    for (let tick = 0; tick < 12; tick += 1) {
      const next = plan.next(at)!;
      expect(next).toBeGreaterThan(at);
      at = next;
    }
  });
});

/** An expression for a time of day that occurs twice, its zone, and the first instant of that time. */
const twice: [cronTime: string, timeZone: string, first: string, setBackByMs: number][] = [
  ['30 2 * * *', 'Europe/Berlin', '2026-10-25T00:30:00Z', HOUR_MS],
  ['30 1 * * *', 'America/New_York', '2026-11-01T05:30:00Z', HOUR_MS],
  ['30 1 * * *', 'Europe/Dublin', '2026-10-25T00:30:00Z', HOUR_MS],
  ['30 0 * * *', 'Atlantic/Azores', '2026-10-25T00:30:00Z', HOUR_MS],
  ['30 23 * * *', 'Africa/Cairo', '2026-10-29T20:30:00Z', HOUR_MS],
  ['30 23 * * *', 'Asia/Beirut', '2026-10-24T20:30:00Z', HOUR_MS],
  ['30 0 * * *', 'America/Havana', '2026-11-01T04:30:00Z', HOUR_MS],
  ['30 1 * * *', 'Asia/Gaza', '2026-10-23T22:30:00Z', HOUR_MS],
  ['30 1 * * *', 'America/St_Johns', '2026-11-01T04:00:00Z', HOUR_MS],
  ['45 1 * * *', 'Australia/Lord_Howe', '2026-04-04T14:45:00Z', HOUR_MS / 2],
  ['30 1 * * *', 'Antarctica/Troll', '2026-10-24T23:30:00Z', 2 * HOUR_MS],
];

describe('a time of day that occurs twice', () => {
  it.each(twice)('%j in %s is one tick, at %s', (cronTime, timeZone, first, setBackByMs) => {
    const plan = createCronPlan({ cronTime, timeZone });
    const firstMs = Date.parse(first);
    const secondMs = firstMs + setBackByMs;
    expect(plan.next(firstMs - 1)).toBe(firstMs);
    expect(plan.next(firstMs)).toBeGreaterThan(firstMs + 20 * HOUR_MS);
    // A replica that searches for missed ticks at any later time.
    for (const atMs of [firstMs, secondMs - 60_000, secondMs, secondMs + 60_000, firstMs + 10 * HOUR_MS]) {
      expect(plan.latest(atMs)).toBe(firstMs);
    }
    // For a job that was started in between, the cron package fires at the second.
    expect(new TickCalculator({ plan }, secondMs - 60_000).calculateTick(secondMs)?.tickMs).toBe(firstMs);
  });
});

describe('around the changes of clocks of a year', () => {
  // In a separate process, because it computes for many seconds. All expressions: `every-zone.ts`.
  it('the plan is what the cron package fires, in every zone', async () => {
    const program = fileURLToPath(new URL('zone-by-zone.ts', import.meta.url));
    const nodeOptions = ['--import', '@swc-node/register/esm-register', '--no-warnings'];
    const { stdout } = await execaNode(program, ['2026'], { nodeOptions });
    const found = JSON.parse(stdout) as { starts: number; wrong: string[] }[];
    expect(found.flatMap(({ wrong }) => wrong)).toEqual([]);
    expect(found.filter(({ starts }) => starts <= 5)).toEqual([]);
    expect(found.length).toBeGreaterThan(50);
  }, 120_000);
});
