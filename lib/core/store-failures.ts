import { formatReason } from './format.js';

type Failures = readonly (readonly [RegExp, string])[];

/** Replies of a store that it repeats until somebody changes a setting. */
const REFUSALS: Failures = [
  [
    /ER_DBACCESS_DENIED|Access denied for user .* to database/im,
    'does not allow this user to use the database: grant it rights there',
  ],
  [
    /WRONGPASS|invalid password|^28P01$|^28000$|password authentication failed|ER_ACCESS_DENIED|Access denied for user|SASL/im,
    'refuses the credentials: check the user name and the password',
  ],
  [/NOAUTH/, 'asks for a password, and none was given: set the user name and the password'],
  [/NOPERM/, 'does not allow this user to run a command: check its ACL'],
  [
    /DB index is out of range|^3D000$|database "[^"]*" does not exist|ER_BAD_DB_ERROR|Unknown database|SQLITE_CANTOPEN/im,
    'does not have the database: check its name or number',
  ],
];

/** Replies of a store, or of the network, that may change by themselves, for example after a failover. */
const FAILURES: Failures = [
  [
    /\bREADONLY\b|^25006$|READ_?ONLY|ER_OPTION_PREVENTS|read-only|WSREP has not/im,
    'takes no writes: connect to the primary, as a user whose transactions are not read-only',
  ],
  [
    /\bOOM\b|NOREPLICAS|MISCONF/,
    'takes no writes: check its memory, its replicas, and whether it can save to its disk',
  ],
  [/ENOTFOUND/, 'has an unknown host name: check the host'],
  [/ECONNREFUSED/, 'refuses connections: check host and port, and whether the server runs'],
];

/** Describes why the store cannot be used; a failure that waiting does not change comes with its remedy. */
export function describeStoreFailure(error: unknown): string {
  const failure = find([...REFUSALS, ...FAILURES], error) ?? 'does not answer yet';
  return `${failure} (${formatReason(error) || collectTexts(error).join(' ')})`;
}

/** As {@link describeStoreFailure}, but only for a refusal that no retry changes; `undefined` for any other error. */
export const describeStoreRefusal = (error: unknown): string | undefined =>
  find(REFUSALS, error) === undefined ? undefined : describeStoreFailure(error);

/** Codes are lines of their own, so that a number in a message is not taken for one. */
function find(failures: Failures, error: unknown): string | undefined {
  const text = collectTexts(error).join('\n');
  return failures.find(([pattern]) => pattern.test(text))?.[1];
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
