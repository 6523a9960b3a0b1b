import { systemClock } from '../../../core/clock.js';
import type { Quorum } from './contest.js';
import { copyTo } from './copies.js';
import { leftOf } from './node-call.js';
import type { Renewal } from './renewal.js';
import { tell } from './tell.js';

/** A shorter lease is over before it helps; who only asks whether a lock is held renews it for a moment. */
const WORTHWHILE_LEASE_MS = 100;

/**
 * After a renewal at a majority, servers that do not hold the lock (any more) are told to hold it as well, so that it
 * outlives the restart of one after the other. That never counts for the renewal which brought it to light, and arrives
 * while that renewal still holds or not at all: then no other grant can have come between.
 */
export async function rejoin(
  { voters, late }: Quorum,
  renewals: readonly Renewal[],
  sentAtMs: number,
): Promise<void> {
  const lost = renewals.filter(
    ({ answer, strangers, leaseMs }) =>
      answer?.kind === 'renewed' && strangers !== 0 && leaseMs >= WORTHWHILE_LEASE_MS,
  );
  for (const witness of voters.all) {
    const its = lost
      .filter((renewal) => renewal.witness === witness)
      .map((renewal) => ({ renewal, expected: late.expect(renewal.holder, renewal.strangers) }));
    if (its.length === 0) continue;
    const told = await tell(
      witness,
      its.map(({ renewal: { key, holder } }) => ({ key, holder, terms: 'copy' })),
      Infinity,
    );
    const untilMs = sentAtMs + Math.min(...its.map(({ renewal }) => renewal.leaseMs)) / 2;
    const nowMs = systemClock.monotonicMs();
    const copies = its.flatMap(({ renewal: { key, holder, leaseMs, strangers }, expected }, index) => {
      late.settle(expected, strangers);
      const lock = told?.answers[index] ?? 'lost';
      if (lock === 'lost' || expected.isOver || nowMs > untilMs) return [];
      const leftMs = leftOf(leaseMs, nowMs - sentAtMs);
      const terms = `rejoin ${leftMs} ${leaseMs + voters.quarantineMs} ${lock}`;
      return [{ strangers, request: { key, holder, terms } }];
    });
    for (const stranger of voters.all) {
      const requests = copies
        .filter(({ strangers }) => strangers & stranger.bit)
        .map(({ request }) => request);
      if (requests.length > 0) void copyTo(stranger, { requests, untilMs, late });
    }
  }
}
