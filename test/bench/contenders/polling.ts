import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Held, TUNED_RETRY_MS } from '../contender.js';

/** Asks again and again: floors have no waiting of their own. */
export async function poll(tryOnce: () => Promise<Held | undefined>, waitMs: number): Promise<Held> {
  const endMs = performance.now() + waitMs;
  for (;;) {
    const held = await tryOnce();
    if (held) return held;
    if (performance.now() > endMs) throw new Error(`still taken after ${waitMs} ms`);
    await sleep(TUNED_RETRY_MS);
  }
}

/** Cheap names of holders, unique over processes. */
export function newOwner(): () => string {
  const process = randomUUID().slice(0, 18);
  let count = 0;
  return () => process + (count++).toString(36);
}
