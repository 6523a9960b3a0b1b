import type { AcquireRequest, TickRequest } from '../../../core/backend.js';
import { TICK_MEMORY_MS } from '../lua.js';
import type { AcquireTerms } from './node-call.js';

/** What the servers are told of an acquisition, for any number of them that want the same. */
export function acquireTerms(request: AcquireRequest, quarantineMs: number): AcquireTerms {
  const { leaseMs, tokenCount = 1, againWithinMs = 0, instance } = request;
  const memoryMs = leaseMs + quarantineMs;
  return { leaseMs, memoryMs, againWithinMs: Math.ceil(againWithinMs), tokenCount, instance };
}

export function claimTerms(request: TickRequest, quarantineMs: number): string {
  const { leaseMs, tokenCount = 1, instance } = request;
  const { tickMs, maxAttempts = 1, isRegistration } = request.tick;
  const about = `${tokenCount} ${tickMs} ${maxAttempts} ${isRegistration ? 1 : 0}`;
  return `claim ${leaseMs} ${leaseMs + quarantineMs} ${about} ${instance}`;
}

export const haveSameTerms = (one: AcquireRequest, other: AcquireRequest) =>
  one.leaseMs === other.leaseMs &&
  one.tokenCount === other.tokenCount &&
  one.againWithinMs === other.againWithinMs &&
  one.instance === other.instance;

/** For how many ms the tick is remembered, and at least for as long as its run holds the key. */
export const memoryOf = ({ leaseMs, tick }: TickRequest, quarantineMs: number) =>
  Math.max(Math.ceil(tick.forget?.afterMs ?? TICK_MEMORY_MS), leaseMs + quarantineMs);
