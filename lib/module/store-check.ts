import type { LoggerService } from '@nestjs/common';
import { LockConfigError, LockUnavailableError } from '../core/errors.js';
import type { Locks } from '../core/locks.js';
import { describeStoreFailure } from '../core/store-failures.js';

/** How long the boot waits for a store that does not answer. */
const CHECK_TIMEOUT_MS = 2_000;
/** The same with `failOnBoot`, where the boot then fails. */
const REQUIRED_CHECK_TIMEOUT_MS = 10_000;

/**
 * Checks at boot whether the store can be used, and logs its advice.
 *
 * @throws LockConfigError if the store or its settings are unfit; with `failOnBoot`, LockUnavailableError if it cannot be used
 */
export async function checkStore(
  locks: Locks,
  { failOnBoot, logger }: { failOnBoot: boolean; logger: Pick<LoggerService, 'warn'> },
): Promise<void> {
  try {
    await locks.check(failOnBoot ? REQUIRED_CHECK_TIMEOUT_MS : CHECK_TIMEOUT_MS);
    const advice = await locks.advice(CHECK_TIMEOUT_MS);
    if (advice !== undefined) logger.warn(advice);
  } catch (error) {
    if (error instanceof LockConfigError) throw error;
    const failure = `The lock store ${describeStoreFailure(error)}.`;
    if (failOnBoot) {
      throw new LockUnavailableError(`${failure} The boot fails because failOnBoot is true.`, {
        cause: error,
      });
    }
    logger.warn(`${failure} Locks are refused until it can be used.`);
  }
}
