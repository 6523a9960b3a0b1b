import { NodeCall, type NodeRequest, type Told } from './node-call.js';
import type { Voter } from './voter.js';

/** What one server says; nothing if it does not. */
export const tell = (voter: Voter, requests: readonly NodeRequest[], untilMs: number) =>
  new Promise<Told | undefined>((resolve) => {
    const hearer = {
      heard: (_: Voter, told: Told) => resolve(told),
      failed: () => resolve(undefined),
    };
    if (!voter.ask(new NodeCall(requests), untilMs, hearer)) resolve(undefined);
  });
