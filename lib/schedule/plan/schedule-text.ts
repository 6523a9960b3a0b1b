import type { CronSchedule } from './plan.js';

/** The schedule of a job as a person reads it. */
export interface JobSchedule {
  readonly text: string;
  /** `null`: that of the process, or none is needed. */
  readonly timeZone: string | null;
}

export function describeCron({ cronTime, timeZone, utcOffset }: CronSchedule): JobSchedule {
  const text = typeof cronTime === 'string' ? cronTime : new Date(Number(cronTime)).toISOString();
  return { text, timeZone: timeZone ?? (utcOffset == null ? null : `utcOffset ${utcOffset}`) };
}

export const describeInterval = (everyMs: number): JobSchedule => ({
  text: `every ${everyMs} ms`,
  timeZone: null,
});

export const describeDeployment = (deployKey: string): JobSchedule => ({
  text: `once for deployKey ${deployKey}`,
  timeZone: null,
});
