import type { AcquireRequest, AcquisitionId } from '../../../../core/backend.js';
import type { AcquireResult } from '../../../../core/backend-results.js';
import {
  type LockRowColumns,
  type RequestRow,
  microseconds,
  releaseResultFrom,
  snapshotFrom,
  takenResultFrom,
  toRequestRow,
} from '../../table/lock-row.js';
import type { Table } from '../../table/table-definition.js';
import { type Acquisitions, type Statements, driverErrorOf } from '../dialect.js';
import type { Session } from '../../connections/session.js';
import { type Values, statementBuilder } from '../../statements/named-parameters.js';
import { createCommonStatements } from '../../statements/common-statements.js';
import { NOTIFY, postgresTexts } from './postgres-sql.js';

/** Program limit exceeded; among others, the queue of NOTIFY is full because a listener does not read. */
const LIMIT_EXCEEDED = '54000';

const MAX_NAME_LENGTH = 63;

/** A table of the same name in another schema shares the channel. That costs needless notifications, but does no harm. */
export const channelNameOf = ({ name }: Table) => `freed_${name}`.slice(0, MAX_NAME_LENGTH);

type StatementName = keyof typeof postgresTexts;

/** Runs a statement of `postgres-sql.ts`. */
type Run = (session: Session, name: StatementName, values: Values) => Promise<readonly object[]>;

/** `granted`: the version of a row that was written; then `holder` is the holder after that. */
type GrantManyRow = LockRowColumns & { readonly key: string; readonly granted: string | null };

export function createPostgresStatements(table: Table): Statements {
  const run = runnerFor(table);
  return {
    ...createCommonStatements(run),
    async acquire(session, requests, notAfterUs) {
      const rows = requests.map((request) => toRequestRow(request, notAfterUs));
      const [first, second] = rows;
      const granted = first && !second && (await tryGrantOne(run, session, first));
      if (granted) return granted;
      const found = await run(session, 'grantMany', {
        ...keysAndHolders(rows),
        instances: textArray(rows.map(({ instance }) => instance)),
        leasesUs: numberArray(rows.map(({ leaseUs }) => leaseUs)),
        tokenCounts: numberArray(rows.map(({ tokenCount }) => tokenCount)),
        retriesWithinUs: numberArray(rows.map(({ retryWithinUs }) => retryWithinUs)),
        latestUs: numberArray(rows.map(({ latestUs }) => latestUs)),
      });
      return acquisitionsFrom(requests, found as [GrantManyRow, ...GrantManyRow[]]);
    },
    async renew(session, requests) {
      const leasesUs = numberArray(requests.map(({ leaseMs }) => microseconds(leaseMs)));
      const renewed = await run(session, 'renew', { ...keysAndHolders(requests), leasesUs });
      const keys = new Set((renewed as { readonly key: string }[]).map(({ key }) => key));
      return requests.map(({ key }) => ({ kind: keys.has(key) ? 'renewed' : 'lost' }));
    },
    async release(session, requests) {
      const [first, second] = requests;
      const released = await (first && !second
        ? run(session, 'releaseOne', { key: first.key, holder: first.holder })
        : run(session, 'releaseMany', keysAndHolders(requests)));
      const rows = released as { readonly key: string; readonly others_wait: boolean }[];
      const hasWaitersByKey = new Map(rows.map((row) => [row.key, row.others_wait]));
      return requests.map(({ key }) => releaseResultFrom(hasWaitersByKey.get(key)));
    },
    async readRows(session, keys) {
      const rows = await run(session, 'readRows', { keys: textArray(keys) });
      return (rows as LockRowColumns[]).map(snapshotFrom);
    },
    async removeIdle(session, keys, memoryMs) {
      await run(session, 'removeIdle', { keys: textArray(keys), memoryUs: microseconds(memoryMs) });
    },
  };
}

function runnerFor(table: Table): Run {
  const constants = { table: table.inSql, channel: `'${channelNameOf(table)}'` };
  const statementOf = statementBuilder({ constants, isNumbered: true });
  const runText = async ({ query }: Session, text: string, values: Values) => {
    const { sql, parametersFrom } = statementOf(text, () => text);
    return (await query(sql, parametersFrom(values))) as readonly object[];
  };
  return async (session, name, values) => {
    const text = postgresTexts[name];
    try {
      return await runText(session, text, values);
    } catch (cause) {
      if (driverErrorOf(cause).code !== LIMIT_EXCEEDED || !text.includes(NOTIFY)) throw cause;
      // A full queue of NOTIFY has rolled a release back. It needs no notification: waiters also retry on their own.
      return await runText(session, text.replaceAll(NOTIFY, 'NULL::text'), values);
    }
  };
}

/** A fast path: for a single free key it takes half the time of `grantMany`. */
async function tryGrantOne(run: Run, session: Session, row: RequestRow): Promise<Acquisitions | undefined> {
  const [granted] = (await run(session, 'grantOne', row)) as { version: string; now: string }[];
  return granted && { nowUs: Number(granted.now), results: [grantedResult(granted.version)] };
}

function acquisitionsFrom(
  requests: readonly AcquireRequest[],
  [clock, ...rows]: readonly [GrantManyRow, ...GrantManyRow[]],
): Acquisitions {
  const [written, refused] = [new Map<string, GrantManyRow>(), new Map<string, GrantManyRow>()];
  for (const row of rows) (row.granted === null ? refused : written).set(row.key, row);
  const results = requests.map((request) => {
    const [row, refusal] = [written.get(request.key), refused.get(request.key)];
    if (row?.granted && row.holder === request.holder) return grantedResult(row.granted);
    return refusal && takenResultFrom(request, snapshotFrom(refusal));
  });
  return { nowUs: Number(clock.store_time), results };
}

const grantedResult = (version: string): AcquireResult => ({
  kind: 'granted',
  fencingToken: BigInt(version),
});

const keysAndHolders = (requests: readonly AcquisitionId[]) => ({
  keys: textArray(requests.map(({ key }) => key)),
  holders: textArray(requests.map(({ holder }) => holder)),
});

/** The text form of an array of PostgreSQL. */
const textArray = (values: readonly string[]) =>
  `{${values.map((value) => `"${value.replace(/["\\]/g, '\\$&')}"`).join()}}`;

const numberArray = (values: readonly (number | null)[]) =>
  `{${values.map((value) => value ?? 'NULL').join()}}`;
