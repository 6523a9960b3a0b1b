import type { AcquireRequest, TickRequest } from '../../../core/backend.js';
import { TICK_MEMORY_MS } from '../single/lock-script.js';
import type { AcquireCommand } from './server-call.js';

/** The parameters of an acquisition. Acquisitions with the same parameters share one object, which is encoded once. */
export function createAcquireCommand(request: AcquireRequest, quarantineMs: number): AcquireCommand {
  const { leaseMs, tokenCount = 1, retryWithinMs = 0, instance } = request;
  const memoryMs = leaseMs + quarantineMs;
  return { leaseMs, memoryMs, retryWithinMs: Math.ceil(retryWithinMs), tokenCount, instance };
}

export function encodeClaim(request: TickRequest, quarantineMs: number): string {
  const { leaseMs, tokenCount = 1, instance } = request;
  const { tickMs, maxAttempts = 1 } = request.tick;
  const details = `${tokenCount} ${tickMs} ${maxAttempts}`;
  return `claim ${leaseMs} ${leaseMs + quarantineMs} ${details} ${instance}`;
}

export const haveSameCommand = (one: AcquireRequest, other: AcquireRequest) =>
  one.leaseMs === other.leaseMs &&
  one.tokenCount === other.tokenCount &&
  one.retryWithinMs === other.retryWithinMs &&
  one.instance === other.instance;

/** How long the servers remember the tick, in ms: at least as long as its run can hold the key. */
export const tickMemoryMs = ({ leaseMs, tick }: TickRequest, quarantineMs: number) =>
  Math.max(Math.ceil(tick.cleanUp?.afterMs ?? TICK_MEMORY_MS), leaseMs + quarantineMs);
