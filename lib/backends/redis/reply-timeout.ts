import type { Redis } from 'ioredis';
import { type Timer, systemClock } from '../../core/clock.js';

/** How often a connection is checked within its timeout. */
const CHECKS = 4;

/**
 * Closes each connection of the client on which commands are open and no byte arrives for `timeoutMs`, or up to a quarter
 * longer. ioredis then opens another one.
 *
 * The same as the option `socketTimeout` of ioredis, which sets a timer and a listener for each command: on a server that
 * replies at once, they are a twentieth of the time of a lock.
 */
export function closeWithoutReplies(client: Redis, timeoutMs: number): void {
  let timer: Timer | undefined;
  client.on('connect', () => {
    const { stream } = client;
    let silentChecks = 0;
    let bytesRead = 0;
    const check = (): void => {
      const isSilent = client.commandQueue.length > 0 && stream.bytesRead === bytesRead;
      silentChecks = isSilent ? silentChecks + 1 : 0;
      bytesRead = stream.bytesRead;
      // A command may have been sent just before the first check.
      if (silentChecks > CHECKS) stream.destroy(new Error(`no reply arrived within ${timeoutMs} ms`));
      else timer = systemClock.after(timeoutMs / CHECKS, check);
    };
    timer?.cancel();
    check();
  });
  client.on('close', () => timer?.cancel());
}
