import type { AcquireRequest, TickRequest } from '../../../core/backend.js';
import { TICK_MEMORY_MS } from '../single/lock-script.js';
import type { AcquireCommand } from './server-call.js';

/** What the servers are told of an acquisition, for any number of them that want the same. */
export function createAcquireCommand(request: AcquireRequest, quarantineMs: number): AcquireCommand {
  const { leaseMs, tokenCount = 1, retryWithinMs = 0, instance } = request;
  const memoryMs = leaseMs + quarantineMs;
  return { leaseMs, memoryMs, retryWithinMs: Math.ceil(retryWithinMs), tokenCount, instance };
}

export function encodeClaim(request: TickRequest, quarantineMs: number): string {
  const { leaseMs, tokenCount = 1, instance } = request;
  const { tickMs, maxAttempts = 1, isRegistration } = request.tick;
  const details = `${tokenCount} ${tickMs} ${maxAttempts} ${isRegistration ? 1 : 0}`;
  return `claim ${leaseMs} ${leaseMs + quarantineMs} ${details} ${instance}`;
}

export const haveSameCommand = (one: AcquireRequest, other: AcquireRequest) =>
  one.leaseMs === other.leaseMs &&
  one.tokenCount === other.tokenCount &&
  one.retryWithinMs === other.retryWithinMs &&
  one.instance === other.instance;

/** For how many ms the tick is remembered, and at least for as long as its run holds the key. */
export const tickMemoryMs = ({ leaseMs, tick }: TickRequest, quarantineMs: number) =>
  Math.max(Math.ceil(tick.cleanUp?.afterMs ?? TICK_MEMORY_MS), leaseMs + quarantineMs);
