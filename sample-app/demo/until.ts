import { setTimeout as sleep } from 'node:timers/promises';

const LIMIT_MS = 10_000;
const PAUSE_MS = 20;

/** Asks again and again, until there is an answer. `what` is what we wait for, in words. */
export async function until<T>(what: string, ask: () => Promise<T | undefined>): Promise<T> {
  const deadline = performance.now() + LIMIT_MS;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    if (performance.now() > deadline) throw new Error(`Expected ${what} within ${LIMIT_MS} ms, in vain.`);
    await sleep(PAUSE_MS);
  }
}
