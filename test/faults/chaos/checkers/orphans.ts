import type { Acquisition } from '../workers/history.js';

/** Something of a key that the store still keeps for somebody. */
export interface StoredEntry {
  readonly key: string;
  /** A grant, a place in line, or something that never goes away by itself. */
  readonly what: 'grant' | 'line' | 'forever';
}

/** How long the store keeps the place in line of somebody who died, at most. */
const QUEUE_ENTRY_KEPT_MS = 12_000;

/** What was on its way when its sender ended may arrive a little later. */
const MARGIN_MS = 6_000;

/**
 * What the store keeps although everybody who was there to give it back has done so. What was asked for by a process that
 * was killed, or closed when it could not reach the store, lapses by itself, each in its time, so it is none yet.
 */
export function findOrphans(
  entries: readonly StoredEntry[],
  acquisitions: readonly Acquisition[],
  nowMs: number,
  /** How long the store keeps a lock with this lease after the death of its holder, at most. */
  keptMs = (leaseMs: number): number => leaseMs,
): StoredEntry[] {
  const isExpected = ({ killedAtMs, closedAtMs, leaseMs }: Acquisition, what: 'grant' | 'line') => {
    const endedAtMs = killedAtMs ?? closedAtMs ?? -Infinity;
    return nowMs < endedAtMs + (what === 'line' ? QUEUE_ENTRY_KEPT_MS : keptMs(leaseMs)) + MARGIN_MS;
  };
  return entries.filter(
    ({ key, what }) =>
      what === 'forever' ||
      !acquisitions.some((acquisition) => acquisition.key === key && isExpected(acquisition, what)),
  );
}
