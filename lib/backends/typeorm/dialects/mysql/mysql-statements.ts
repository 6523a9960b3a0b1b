import { randomInt } from 'node:crypto';
import {
  type AcquireRequest,
  type Claim,
  MAX_HISTORY_ENTRIES,
  type RenewRequest,
  unknownResult,
} from '../../../../core/backend.js';
import {
  type GrantOutcome,
  type LockRowColumns,
  type LockRowSnapshot,
  snapshotFrom,
  textFrom,
} from '../../table/lock-row.js';
import { microseconds, toRequestRow } from '../../table/request-row.js';
import type { Query, Session, Statements, Table } from '../dialect.js';
import { driverErrorOf } from '../driver-error.js';
import { type ReleasedRow, releaseResultsFrom } from './mysql-release-results.js';
import { padToBucketSize } from './parameter-padding.js';

/** The time at which the statement began, the same everywhere in it, and independent of the session's time zone. */
const NOW = `TIMESTAMPDIFF(MICROSECOND, DATE'1970-01-01', UTC_TIMESTAMP(6))`;

const SYNTAX_ERROR = '1064';

const LOCK_ROW_COLUMNS = `\`key\`, holder, instance, version, expires_at, acquired_at, tick, attempt, ${NOW} AS store_time`;

interface Outcome {
  readonly affectedRows: number | string;
  readonly insertId: number | string;
}

type Row = LockRowColumns & { readonly key: Buffer };

/** `returning`: the database supports `INSERT … RETURNING`, as MariaDB does. */
export function createMysqlStatements({ inSql }: Table, { returning }: { returning: boolean }): Statements {
  let canReturn = returning;

  /*
   * In: for each request key, holder, instance, latest µs to grant it, number of tokens, lease µs twice, and the µs within
   *   which a refused request is repeated, or NULL.
   * Out: the version of the last grant as insertId, 0 if the last request was refused; the rows, with RETURNING.
   * One step, because the row is locked before it is read.
   * Assignments take effect in their order. Holders are unique, so after its assignment \`holder\` shows whether the row was
   * granted; until its own assignment \`expires_at\` shows whether the key was free before.
   * The argument of LAST_INSERT_ID depends on the row: a constant would be evaluated, and kept, before any row is read.
   * A first row that came too late is a free one: its version is 0, and its \`expires_at\` is the negative lease.
   */
  const isGranted = 'holder = VALUES(holder)';
  const isAnew = `${isGranted} AND expires_at <= ${NOW}`;
  const first = `(?, ?, CONVERT(? USING utf8mb4), LAST_INSERT_ID(IF(${NOW} <= ?, ${NOW}, 0)), ?,
  IF(version > 0, ${NOW} + ?, -?), ${NOW}, -?)`;
  const grant = (count: number) => `
INSERT INTO ${inSql} (\`key\`, holder, instance, version, token_count, expires_at, acquired_at, waiting_until)
VALUES ${listOf(first, count)}
ON DUPLICATE KEY UPDATE
  holder = IF(expires_at > ${NOW}, holder,
    IF(VALUES(version) > 0, VALUES(holder), NULL)),
  instance = IF(${isGranted}, VALUES(instance), instance),
  version = IF(${isGranted},
    LAST_INSERT_ID(IF(expires_at > ${NOW}, version, GREATEST(version + token_count, ${NOW}))),
    version + LAST_INSERT_ID(IF(version IS NULL, 1, 0))),
  token_count = IF(${isAnew}, VALUES(token_count), token_count),
  acquired_at = IF(${isAnew}, ${NOW}, acquired_at),
  waiting_until = IF(expires_at > ${NOW} AND NOT (${isGranted})
    AND COALESCE(waiting_until, 0) < ${NOW} - VALUES(waiting_until) / 2, ${NOW} - VALUES(waiting_until), waiting_until),
  expires_at = IF(${isGranted},
    GREATEST(expires_at, IF(VALUES(version) > 0, VALUES(expires_at), ${NOW} - VALUES(expires_at))), expires_at)`;

  const read = (count: number) =>
    `SELECT ${LOCK_ROW_COLUMNS} FROM ${inSql} WHERE \`key\` IN (${listOf('?', count)})`;
  const selectRow = `
SELECT ${NOW} AS store_time, l.holder, l.instance, l.version, l.expires_at, l.acquired_at, l.tick, l.attempt
FROM (SELECT 1) one LEFT JOIN ${inSql} l ON l.\`key\` = ?`;

  /*
   * In: the value to set, then all keys, then each key with its holder; or one key and one holder.
   * Out: how many rows matched.
   * One step, because an UPDATE locks the row before it evaluates the condition. The index is forced, so that the statement
   * does not read rows of other keys, which might be locked.
   */
  const updateHeld = (set: string, count: number) => `
UPDATE ${inSql} FORCE INDEX (PRIMARY) SET ${set} WHERE ${count === 1 ? claimOne : claims(count)} AND expires_at > ${NOW}`;
  const claimOne = '`key` = ? AND holder = ?';
  const claims = (count: number) =>
    `\`key\` IN (${listOf('?', count)}) AND (\`key\`, holder) IN (${listOf('(?, ?)', count)})`;
  const setRenewed = `expires_at = GREATEST(expires_at, ${NOW} + ?)`;
  // The insertId is 1 if one of the keys had waiters. The sign of waiting_until and the mark in expires_at show which one.
  const setReleased = `holder = NULL,
  waiting_until = IF(waiting_until > ${NOW} AND LAST_INSERT_ID(IF(waiting_until > 0, 1, 0)), -waiting_until, NULL),
  expires_at = -?, acquired_at = ${NOW}`;
  const readReleased = (count: number) =>
    `SELECT \`key\`, expires_at, waiting_until FROM ${inSql} WHERE \`key\` IN (${listOf('?', count)})`;

  /** In: key, fencing token. Out and why one step: as above. */
  const forceRelease = `
UPDATE ${inSql} SET holder = NULL, expires_at = 0, acquired_at = ${NOW}, waiting_until = NULL
WHERE \`key\` = ? AND CAST(? AS SIGNED) BETWEEN version AND version + token_count - 1 AND expires_at > ${NOW}`;

  const insertMissing = `
INSERT INTO ${inSql} (\`key\`, instance, version, token_count, expires_at, acquired_at) VALUES (?, '', 0, 0, 0, 0)
ON DUPLICATE KEY UPDATE version = version`;
  /*
   * In: holder, instance, number of tokens, lease µs, tick ms, attempt; key, latest µs; of the row as it was read: version,
   *   expires_at, tick or NULL, attempt.
   * Out: the version as insertId and one matching row, if the row had not changed and it was not too late.
   * One step, because an UPDATE locks the row before it evaluates the condition. Assignments take effect in their order.
   */
  const claim = `
UPDATE ${inSql} FORCE INDEX (PRIMARY) SET holder = ?, instance = CONVERT(? USING utf8mb4),
  version = LAST_INSERT_ID(GREATEST(version + token_count, ${NOW})), token_count = ?,
  expires_at = ${NOW} + ?, acquired_at = ${NOW}, tick = ?, attempt = ?
WHERE \`key\` = ? AND ${NOW} <= ? AND version = CAST(? AS SIGNED) AND expires_at = ? AND tick <=> ?
  AND COALESCE(attempt, 0) = ?`;
  const register = `UPDATE ${inSql} SET tick = ?, attempt = 0 WHERE \`key\` = ? AND tick IS NULL`;
  // The insertId is 1 if the key had waiters. The end of a run counts even after its lease, while the row names the holder.
  const releaseEndedRun = `UPDATE ${inSql} FORCE INDEX (PRIMARY) SET attempt = 0, ${setReleased} WHERE ${claimOne}`;

  /** In: key, line. One step, because an upsert locks the row before it reads the lines to which it adds one. */
  const appendHistory = `
INSERT INTO ${inSql} (\`key\`, instance, version, token_count, expires_at, acquired_at, notes)
VALUES (?, '', 0, 0, 0, 0, CONVERT(? USING utf8mb4))
ON DUPLICATE KEY UPDATE
  notes = SUBSTRING_INDEX(CONCAT_WS(CHAR(10 USING utf8mb4), VALUES(notes), notes), CHAR(10 USING utf8mb4), ${MAX_HISTORY_ENTRIES})`;
  const readHistory = `SELECT CONVERT(notes USING utf8mb4) AS notes FROM ${inSql} WHERE \`key\` = ?`;
  const cleanUp = `
DELETE FROM ${inSql} WHERE \`key\` >= ? AND \`key\` < ? AND expires_at <= ${NOW}
  AND (attempt = 0 OR GREATEST(expires_at, acquired_at) <= ${NOW} - ?)`;

  const readRows = async ({ query }: Session, keys: readonly Buffer[]) =>
    (await query(read(keys.length), keys)) as readonly Row[];

  const grantRows = async (session: Session, keys: readonly Buffer[], parameters: readonly unknown[]) => {
    if (canReturn) {
      try {
        const sql = `${grant(keys.length)}\nRETURNING ${LOCK_ROW_COLUMNS}`;
        return (await session.query(sql, parameters)) as readonly Row[];
      } catch (cause) {
        if (driverErrorOf(cause).code !== SYNTAX_ERROR) throw cause;
        canReturn = false; // The data source says MariaDB, but the server is MySQL.
      }
    }
    await session.query(grant(keys.length), parameters);
    return readRows(session, keys);
  };

  const update = async (query: Query, set: string, value: number, claims: readonly Claim[]) => {
    const pairs = padToBucketSize(sortedByKey(claims)).map(({ key, holder }) => [bytes(key), bytes(holder)]);
    const keys = pairs.length === 1 ? [] : pairs.map(([key]) => key);
    return (await query(updateHeld(set, pairs.length), [value, ...keys, ...pairs.flat()])) as Outcome;
  };

  const renewWithSameLease = async (
    { query }: Session,
    requests: readonly RenewRequest[],
    leaseMs: number,
  ) => {
    const { affectedRows } = await update(query, setRenewed, microseconds(leaseMs), requests);
    if (Number(affectedRows) === requests.length) return requests;
    if (Number(affectedRows) === 0) return [];
    // A holder that holds its key now also held it during the UPDATE, because no holder is granted a key twice. So its lease
    // was renewed.
    const rows = await readRows({ query } as Session, padToBucketSize(requests.map(({ key }) => bytes(key))));
    const holders = new Map(rows.filter(isHeld).map((row) => [textFrom(row.key), textFrom(row.holder)]));
    return requests.filter(({ key, holder }) => holders.get(key) === holder);
  };

  return {
    async acquire(session, requests, notAfterUs) {
      const padded = padToBucketSize(sortedByKey(requests));
      const parameters = padded.flatMap((request) => parametersOf(request, notAfterUs));
      const keys = padded.map(({ key }) => bytes(key));
      if (requests.length === 1) {
        const { insertId } = (await session.query(grant(1), parameters)) as Outcome;
        const fencingToken = BigInt(insertId);
        if (fencingToken > 0n) return { outcomes: [{ fencingToken }] };
        return grantOutcomesFrom(requests, await readRows(session, keys));
      }
      return grantOutcomesFrom(requests, await grantRows(session, keys, parameters));
    },
    async renew(session, requests) {
      const renewed = new Set<RenewRequest>();
      for (const leaseMs of new Set(requests.map((request) => request.leaseMs))) {
        const withSameLease = requests.filter((request) => request.leaseMs === leaseMs);
        for (const request of await renewWithSameLease(session, withSameLease, leaseMs)) renewed.add(request);
      }
      return requests.map((request) => ({ kind: renewed.has(request) ? 'renewed' : 'lost' }));
    },
    async release({ query }, claims) {
      const mark = claims.length === 1 ? 0 : randomInt(1, 2 ** 47);
      const { affectedRows, insertId } = await update(query, setReleased, mark, claims);
      const releasedCount = Number(affectedRows);
      if (releasedCount === 0) return claims.map(() => ({ kind: 'gone' }));
      if (Number(insertId) === 0 && releasedCount === claims.length)
        return claims.map(() => ({ kind: 'released' }));
      if (claims.length === 1) return [{ kind: 'released', hasWaiters: true }];
      const keys = padToBucketSize(claims.map(({ key }) => bytes(key)));
      try {
        const rows = (await query(readReleased(keys.length), keys)) as ReleasedRow[];
        return releaseResultsFrom({ claims, releasedCount, mark }, rows);
      } catch (cause) {
        // The keys were released all the same; repeating the release would return `gone`.
        if (releasedCount === claims.length)
          return claims.map(() => ({ kind: 'released', hasWaiters: true }));
        return claims.map(() => unknownResult(cause));
      }
    },
    async forceRelease({ query }, key, fencingToken) {
      const { affectedRows } = (await query(forceRelease, [bytes(key), String(fencingToken)])) as Outcome;
      return Number(affectedRows) === 1;
    },
    async readRow({ query }, key): Promise<LockRowSnapshot> {
      const [row] = (await query(selectRow, [bytes(key)])) as [LockRowColumns];
      return snapshotFrom(row);
    },
    async insertMissing({ query }, key) {
      await query(insertMissing, [bytes(key)]);
    },
    async claim({ query }, request, { row, attempt, notAfterUs }) {
      const { key, holder, tick } = request;
      const { instance, leaseUs, tokenCount, latestUs } = toRequestRow(request, notAfterUs);
      const grant = [bytes(holder), bytes(instance), tokenCount, leaseUs, tick?.tickMs, attempt];
      const expectedRow = [String(row.fencingToken), row.expiresAtUs, row.tickMs, row.attempt];
      const parameters = [...grant, bytes(key), latestUs, ...expectedRow];
      const { affectedRows, insertId } = (await query(claim, parameters)) as Outcome;
      return Number(affectedRows) === 1 ? BigInt(insertId) : undefined;
    },
    async register({ query }, key, tickMs) {
      return Number(((await query(register, [tickMs, bytes(key)])) as Outcome).affectedRows) === 1;
    },
    async releaseEndedRun({ query }, { key, holder }) {
      const { affectedRows, insertId } = (await query(releaseEndedRun, [
        0,
        bytes(key),
        bytes(holder),
      ])) as Outcome;
      if (Number(affectedRows) === 0) return { kind: 'gone' };
      return Number(insertId) === 0 ? { kind: 'released' } : { kind: 'released', hasWaiters: true };
    },
    async appendHistory({ query }, key, entry) {
      await query(appendHistory, [bytes(key), bytes(entry)]);
    },
    async readHistory({ query }, key) {
      const [row] = (await query(readHistory, [bytes(key)])) as { readonly notes: string | Buffer | null }[];
      return textFrom(row?.notes ?? null);
    },
    cleanUp: ({ query }, { fromKey, beforeKey, afterMs }) =>
      query(cleanUp, [bytes(fromKey), bytes(beforeKey), microseconds(afterMs)]),
  };
}

const listOf = (item: string, count: number) => Array(count).fill(item).join(', ');

/** Bytes, because text is sent in the connection's character set, which may lack some characters. */
const bytes = (text: string) => Buffer.from(text, 'utf8');

/** The order in which an UPDATE locks the rows. */
const sortedByKey = <T extends Claim>(requests: readonly T[]): readonly T[] =>
  requests.length === 1 ? requests : [...requests].sort((a, b) => Buffer.compare(bytes(a.key), bytes(b.key)));

function parametersOf(request: AcquireRequest, notAfterUs: number): readonly unknown[] {
  const { instance, leaseUs, tokenCount, retryWithinUs, latestUs } = toRequestRow(request, notAfterUs);
  const claim = [bytes(request.key), bytes(request.holder), bytes(instance)];
  return [...claim, latestUs, tokenCount, leaseUs, leaseUs, retryWithinUs];
}

const isHeld = ({ expires_at, store_time }: Row) => Number(expires_at) > Number(store_time);

function grantOutcomesFrom(requests: readonly AcquireRequest[], rows: readonly Row[]) {
  const rowsByKey = new Map(rows.map((row) => [textFrom(row.key), row]));
  const outcomes = requests.map(({ key, holder }): GrantOutcome => {
    const row = rowsByKey.get(key);
    if (!row) return undefined;
    const isOurs = isHeld(row) && textFrom(row.holder) === holder;
    return isOurs ? { fencingToken: BigInt(textFrom(row.version)) } : { snapshot: snapshotFrom(row) };
  });
  return { nowUs: rows[0] && Number(textFrom(rows[0].store_time)), outcomes };
}
