import { systemClock } from '../../../core/clock.js';
import type { Quorum } from './contest.js';
import { copyTo } from './copies.js';
import { leftOf } from './node-call.js';
import type { Renewal } from './renewal.js';
import { tell } from './tell.js';

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
  const lost = renewals.filter(({ answer, strangers }) => answer?.kind === 'renewed' && strangers !== 0);
  for (const witness of voters.all) {
    const its = lost.filter((renewal) => renewal.witness === witness);
    if (its.length === 0) continue;
    for (const { holder, strangers } of its) late.expect(holder, strangers);
    const told = await tell(
      witness,
      its.map(({ key, holder }) => ({ key, holder, terms: 'copy' })),
      Infinity,
    );
    const untilMs = sentAtMs + Math.min(...its.map(({ leaseMs }) => leaseMs)) / 2;
    const nowMs = systemClock.monotonicMs();
    const copies = its.flatMap(({ key, holder, leaseMs, strangers }, index) => {
      // Given back meanwhile, it is expected nowhere any more.
      const servers = strangers & late.of(holder);
      late.settle(holder, strangers);
      const lock = nowMs <= untilMs ? (told?.answers[index] ?? 'lost') : 'lost';
      if (lock === 'lost') return [];
      const leftMs = leftOf(leaseMs, nowMs - sentAtMs);
      const terms = `rejoin ${leftMs} ${leaseMs + voters.quarantineMs} ${lock}`;
      return [{ servers, request: { key, holder, terms } }];
    });
    for (const stranger of voters.all) {
      const requests = copies.filter(({ servers }) => servers & stranger.bit).map(({ request }) => request);
      if (requests.length > 0) void copyTo(stranger, { requests, untilMs, late });
    }
  }
}
