import type { AcquireRequest, Claim, ReleaseAnswer, RenewAnswer, RenewRequest } from '../../core/backend.js';
import { FARTHEST_US, askedOf, microseconds } from './asked.js';
import type { Statements, Table, Visit } from './dialect.js';
import { NewestTokens } from './newest-tokens.js';
import { type Granting, type Seen, refusal } from './seen.js';
import { inTransaction, whenNotBusy } from './sqlite-transaction.js';

/** As exact as SQLite's clock: to the ms. */
const NOW = `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now`;

interface Row {
  readonly holder: string | null;
  readonly instance: string;
  /** As text, because it may be any number. */
  readonly version: string;
  readonly token_count: number;
  readonly expires_at: number;
  readonly acquired_at: number;
  readonly tick: number | null;
  readonly waiting_until: number | null;
}

/** All steps for a list are taken in one transaction, in which nobody else writes: each may read, decide and write. */
export function on({ inSql }: Table): Statements {
  const newest = new NewestTokens();

  const read = `
SELECT holder, instance, CAST(version AS TEXT) AS version, token_count, expires_at, acquired_at, tick, waiting_until
FROM ${inSql} WHERE key = ?`;
  const insert = `
INSERT INTO ${inSql} (key, holder, instance, version, token_count, expires_at, acquired_at, tick)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)`;
  const regrant = `
UPDATE ${inSql} SET holder = ?, instance = ?, version = CAST(? AS INTEGER), token_count = ?, expires_at = ?,
  acquired_at = ?, tick = coalesce(?, tick) WHERE key = ?`;
  const prolong = `UPDATE ${inSql} SET expires_at = ? WHERE key = ?`;
  const mark = `UPDATE ${inSql} SET waiting_until = ? WHERE key = ?`;
  const free = `UPDATE ${inSql} SET holder = NULL, expires_at = 0, waiting_until = NULL WHERE key = ?`;

  const now = ({ run }: Visit) => (run(NOW) as [{ now: number }])[0].now;
  const rowOf = ({ run }: Visit, key: string) => (run(read, [key]) as [Row?])[0];
  const heldRow = (visit: Visit, key: string, nowUs: number) => {
    const row = rowOf(visit, key);
    return row && row.expires_at > nowUs ? row : undefined;
  };

  const grant = (visit: Visit, request: AcquireRequest, nowUs: number, row: Row | undefined): bigint => {
    const { key, holder } = request;
    const { instance, leaseUs, tokenCount, tickMs } = askedOf(request, FARTHEST_US);
    const first = newest.after(key, nowUs);
    const next = row ? BigInt(row.version) + BigInt(row.token_count) : 0n;
    const token = next > first ? next : BigInt(first);
    newest.note(key, Number(token) + tokenCount);
    const rest = [tokenCount, nowUs + leaseUs, nowUs, tickMs];
    if (row) visit.run(regrant, [holder, instance, String(token), ...rest, key]);
    else visit.run(insert, [key, holder, instance, first, ...rest]);
    return token;
  };

  const acquire = (visit: Visit, request: AcquireRequest, nowUs: number): Granting => {
    const { key, holder, leaseMs, againWithinMs } = request;
    const row = rowOf(visit, key);
    const isHeld = row !== undefined && row.expires_at > nowUs;
    if (isHeld && row.holder === holder) {
      visit.run(prolong, [nowUs + microseconds(leaseMs), key]);
      return { fencingToken: BigInt(row.version) };
    }
    const seen = seenFrom(nowUs, row);
    if (!refusal(request, seen)) return { fencingToken: grant(visit, request, nowUs, row) };
    if (isHeld && againWithinMs !== undefined) {
      const againUs = microseconds(againWithinMs);
      if ((row.waiting_until ?? 0) < nowUs + againUs / 2) visit.run(mark, [nowUs + againUs, key]);
    }
    return { seen };
  };

  const renew = (visit: Visit, { key, holder, leaseMs }: RenewRequest, nowUs: number): RenewAnswer => {
    const row = heldRow(visit, key, nowUs);
    if (row?.holder !== holder) return { kind: 'lost' };
    visit.run(prolong, [Math.max(row.expires_at, nowUs + microseconds(leaseMs)), key]);
    return { kind: 'renewed' };
  };

  const release = (visit: Visit, { key, holder }: Claim, nowUs: number): ReleaseAnswer => {
    const row = heldRow(visit, key, nowUs);
    if (row?.holder !== holder) return { kind: 'gone' };
    visit.run(free, [key]);
    return (row.waiting_until ?? 0) > nowUs ? { kind: 'released', othersWait: true } : { kind: 'released' };
  };

  const forceRelease = (visit: Visit, key: string, fencingToken: bigint): boolean => {
    const row = heldRow(visit, key, now(visit));
    const first = BigInt(row?.version ?? 0);
    if (!row || fencingToken < first || fencingToken >= first + BigInt(row.token_count)) return false;
    visit.run(free, [key]);
    return true;
  };

  const forEach = <Request, Answer>(
    visit: Visit,
    requests: readonly Request[],
    step: (visit: Visit, request: Request, nowUs: number) => Answer,
  ) =>
    inTransaction(visit, () => {
      const nowUs = now(visit);
      return requests.map((request) => step(visit, request, nowUs));
    });

  return {
    acquire: async (visit, requests) => ({ each: await forEach(visit, requests, acquire) }),
    renew: (visit, requests) => forEach(visit, requests, renew),
    release: (visit, claims) => forEach(visit, claims, release),
    forceRelease: (visit, key, fencingToken) =>
      inTransaction(visit, () => forceRelease(visit, key, fencingToken)),
    look: (visit, key) => whenNotBusy(visit, () => seenFrom(now(visit), rowOf(visit, key))),
  };
}

function seenFrom(nowUs: number, found: Row | undefined): Seen {
  if (!found) return { nowUs };
  const { holder, instance, version, expires_at, acquired_at, tick } = found;
  const row = { holder: holder ?? '', instance, fencingToken: BigInt(version), tickMs: tick };
  return { nowUs, row: { ...row, expiresAtUs: expires_at, acquiredAtUs: acquired_at } };
}
