import { systemClock } from '../../../core/clock.js';
import { type NodeRequest, leftOf } from './node-call.js';
import type { Renewal } from './renewal.js';
import { tell } from './tell.js';
import type { Voters } from './voters.js';

/**
 * After a renewal at a majority, servers that do not hold the lock (any more) are told to hold it as well, so that it
 * outlives the restart of one after the other. That never counts for the renewal which brought it to light, and arrives
 * while that renewal still holds or not at all: then no other grant can have come between.
 */
export async function rejoin(voters: Voters, renewals: readonly Renewal[], sentAtMs: number): Promise<void> {
  const lost = renewals.filter(({ answer, strangers }) => answer?.kind === 'renewed' && strangers.length > 0);
  for (const witness of voters.all) {
    const its = lost.filter((renewal) => renewal.witness === witness);
    if (its.length === 0) continue;
    const told = await tell(
      witness,
      its.map(({ key, holder }) => ({ key, holder, terms: 'copy' })),
      Infinity,
    );
    const shortestMs = Math.min(...its.map(({ leaseMs }) => leaseMs));
    const untilMs = sentAtMs + shortestMs / 2;
    const passedMs = systemClock.monotonicMs() - sentAtMs;
    if (!told || sentAtMs + passedMs > untilMs) continue;
    for (const stranger of voters.all) {
      const requests = its.flatMap(({ key, holder, leaseMs, strangers }, index): NodeRequest[] => {
        const lock = told.answers[index];
        if (!strangers.includes(stranger) || lock === undefined || lock === 'lost') return [];
        const leftMs = leftOf(leaseMs, passedMs);
        return [{ key, holder, terms: `rejoin ${leftMs} ${leaseMs + voters.quarantineMs} ${lock}` }];
      });
      if (requests.length > 0) void tell(stranger, requests, untilMs);
    }
  }
}
