import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 5;

/** Waits for the condition; the test's own time limit is what ends it in vain. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await sleep(POLL_MS);
}
