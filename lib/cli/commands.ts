import { MAX_LIMIT } from '../core/list-options.js';
import type { LockInfo } from '../core/lock-admin.js';
import type { FreeCommand, LocksCommand, RunsCommand } from './arguments.js';
import type { OpenStore } from './open-store.js';
import { type Output, formatTable } from './output.js';

/** Prints the locks that are held now. */
export async function printLocks(
  { locks, namespace }: OpenStore,
  { prefix, limit, json }: LocksCommand,
  output: Output,
): Promise<boolean> {
  const found = new Map<string, LockInfo>();
  let cursor: string | undefined;
  do {
    const page = await locks.list({ prefix, limit: Math.min(limit, MAX_LIMIT), ...(cursor && { cursor }) });
    for (const lock of page.locks) found.set(nameOf(lock), lock);
    ({ cursor } = page);
  } while (cursor && found.size <= limit);
  const shown = [...found.values()].slice(0, limit);
  if (json) output.print(JSON.stringify(shown.map(jsonOf)));
  else output.print(formatTable([LOCK_COLUMNS, ...shown.map(rowOf)]));
  if (found.size === 0) output.warn(`No lock is held in ${nameNamespace(namespace)}.`);
  if (found.size > limit) output.warn('There are more locks: raise --limit, or give a --prefix.');
  return true;
}

/** A wrong namespace shows nothing, so an empty result names the one that was read. */
const nameNamespace = (namespace: string) => `the namespace "${namespace}" (--namespace)`;

/** A key with permits may have several holders. */
const nameOf = ({ key, permit }: LockInfo) => JSON.stringify([key, permit]);

/** `waiting` counts the callers of one process, and this process has none. */
const jsonOf = ({ key, holder, instance, since, remainingMs, fencingToken, ...more }: LockInfo) => ({
  key,
  ...(more.mode !== undefined && { mode: more.mode }),
  ...(more.permit !== undefined && { permit: more.permit }),
  ...{ holder, instance, since, remainingMs, fencingToken: String(fencingToken) },
  ...(more.queued !== undefined && { queued: more.queued }),
});

const LOCK_COLUMNS = ['KEY', 'MODE', 'PERMIT', 'INSTANCE', 'SINCE', 'TOKEN', 'REMAINING', 'WAITING'];

const rowOf = ({ key, mode, permit, instance, since, remainingMs, fencingToken, queued }: LockInfo) => [
  ...[key, mode, permit, instance, since.toISOString(), fencingToken, formatSeconds(remainingMs), queued],
];

const formatSeconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`;

/** Prints the last runs of a job, and those that are in progress. */
export async function printRuns(
  { cronRuns, namespace }: OpenStore,
  { job, json }: RunsCommand,
  output: Output,
): Promise<boolean> {
  const { runs } = await cronRuns.history(job);
  if (runs.length === 0) output.warn(`No run of this job is known in ${nameNamespace(namespace)}.`);
  if (json) {
    output.print(JSON.stringify(runs));
    return true;
  }
  const rows = runs.map(({ tick, attempt, outcome, started, ended, instance, error }) => [
    ...[tick.toISOString(), attempt, outcome, started.toISOString()],
    ...[ended && formatSeconds(Number(ended) - Number(started)), instance, error],
  ]);
  output.print(formatTable([RUN_COLUMNS, ...rows]));
  return true;
}

const RUN_COLUMNS = ['TICK', 'ATTEMPT', 'OUTCOME', 'STARTED', 'TOOK', 'INSTANCE', 'ERROR'];

/** Releases the lock if its grant still has the token. Returns whether it did. */
export async function freeLock(
  { locks }: OpenStore,
  { key, fencingToken, permit, json }: FreeCommand,
  output: Output,
): Promise<boolean> {
  const ofPermit = permit !== undefined && { permit };
  const freed = await locks.forceRelease(key, { fencingToken, ...ofPermit });
  if (json) output.print(JSON.stringify({ key, ...ofPermit, freed }));
  else output.print(freed ? 'Released.' : 'Nothing was released: no grant with this token holds the lock.');
  return freed;
}
