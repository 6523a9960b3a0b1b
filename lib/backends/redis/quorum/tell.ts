import { systemClock } from '../../../core/clock.js';
import { LONGEST_CALL_MS, NodeCall, type NodeRequest, type Told } from './node-call.js';
import type { Voter } from './voter.js';

/** What one server says; nothing if it does not. What arrives later than `untilMs`, or very late, is refused. */
export const tell = (voter: Voter, requests: readonly NodeRequest[], untilMs: number) =>
  new Promise<Told | undefined>((resolve) => {
    const hearer = {
      heard: (_: Voter, told: Told) => resolve(told),
      failed: () => resolve(undefined),
    };
    const latestMs = Math.min(untilMs, systemClock.monotonicMs() + LONGEST_CALL_MS);
    if (!voter.ask(new NodeCall(requests), latestMs, hearer)) resolve(undefined);
  });
