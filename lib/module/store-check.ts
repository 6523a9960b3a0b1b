import type { LoggerService } from '@nestjs/common';
import { LockConfigError, LockUnavailableError } from '../core/errors.js';
import { formatReason } from '../core/format.js';
import type { Locks } from '../core/locks.js';

/** How long the boot waits for a store that does not answer. */
const CHECK_TIMEOUT_MS = 2_000;
/** The same with `failOnBoot`, where the boot then fails. */
const REQUIRED_CHECK_TIMEOUT_MS = 10_000;

/** Replies of a store, or of the network, that waiting does not change. */
const KNOWN_FAILURES: readonly (readonly [RegExp, string])[] = [
  [
    /WRONGPASS|invalid password|28P01|28000|password authentication failed|ER_ACCESS_DENIED|Access denied for user|SASL/i,
    'refuses the credentials: check the user name and the password',
  ],
  [/NOAUTH/, 'asks for a password, and none was given: set the user name and the password'],
  [/NOPERM/, 'does not allow this user to run a command: check its ACL'],
  [
    /DB index is out of range|3D000|database "[^"]*" does not exist|ER_BAD_DB_ERROR|Unknown database|SQLITE_CANTOPEN/i,
    'does not have the database: check its name or number',
  ],
  [
    /\bREADONLY\b|25006|READ_?ONLY|ER_OPTION_PREVENTS|read-only|WSREP has not/i,
    'takes no writes: connect to the primary, as a user whose transactions are not read-only',
  ],
  [/ENOTFOUND/, 'has an unknown host name: check the host'],
  [/ECONNREFUSED/, 'refuses connections: check host and port, and whether the server runs'],
];

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

/** Describes why the store cannot be used; a failure that waiting does not change comes with its remedy. */
export function describeStoreFailure(error: unknown): string {
  const text = collectTexts(error).join(' ');
  const [, knownFailure] = KNOWN_FAILURES.find(([pattern]) => pattern.test(text)) ?? [];
  return `${knownFailure ?? 'does not answer yet'} (${formatReason(error) || text})`;
}

/** The messages and codes of an error and its causes. An `AggregateError`, as after two addresses, has no message itself. */
function collectTexts(error: unknown, depth = 0): readonly string[] {
  if (!(error instanceof Error) || depth > 5) return typeof error === 'string' ? [error] : [];
  const { message, cause } = error;
  const { code } = error as { readonly code?: unknown };
  const all = error instanceof AggregateError ? (error.errors as readonly unknown[]) : [];
  const own = typeof code === 'string' ? [message, code] : [message];
  return [...own, ...[...all, cause].flatMap((one) => collectTexts(one, depth + 1))].filter(
    (text) => text !== '',
  );
}
