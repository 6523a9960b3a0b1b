import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 5;
/** Only so that a spec whose condition never comes does not keep its file from ending. */
const GIVE_UP_MS = 90_000;

/** Waits for the condition. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const giveUpAt = performance.now() + GIVE_UP_MS;
  while (!(await condition())) {
    if (performance.now() > giveUpAt) throw new Error(`Waited in vain for ${condition.toString()}.`);
    await sleep(POLL_MS);
  }
}
