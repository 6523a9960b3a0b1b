import type { CronSchedule } from './plan.js';

/** The schedule of a job as a person reads it. */
export interface JobSchedule {
  readonly text: string;
  /** `null` if none is needed. */
  readonly timeZone: string | null;
}

export function describeCron({ cronTime, timeZone, utcOffset }: CronSchedule): JobSchedule {
  const text = typeof cronTime === 'string' ? cronTime : new Date(Number(cronTime)).toISOString();
  if (utcOffset != null) return { text, timeZone: `utcOffset ${utcOffset}` };
  return { text, timeZone: timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone };
}

export const describeInterval = (everyMs: number): JobSchedule => ({
  text: `every ${everyMs} ms`,
  timeZone: null,
});

export const describeDeployment = (deployKey: string): JobSchedule => ({
  text: `once for deployKey ${deployKey}`,
  timeZone: null,
});
