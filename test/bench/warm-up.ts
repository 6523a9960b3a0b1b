import type { Session } from './contender.js';
import { times } from './statistics.js';

/** Connections are open and the code is compiled before anything counts. */
export async function warmUp(session: Session, locks = 50): Promise<void> {
  for (const key of times(locks, (index) => `warm:${process.pid}:${index}`)) {
    const held = await session.acquire(key);
    await held.release();
  }
}
