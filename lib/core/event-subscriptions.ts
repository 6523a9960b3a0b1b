import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { LockEventListeners } from './events.js';

interface TraceListeners<Trace> {
  readonly start: (trace: Trace) => void;
  readonly asyncEnd: (trace: Trace) => void;
}

/** Subscribes to events of all lock modules of the process. Returns a function that unsubscribes. */
export const subscribeToEvents = (listeners: LockEventListeners) =>
  subscribeToAll((name) => `nestjs-distributed-lock:${name}`, listeners);

/** Subscribes to the start and the end of traced operations. Returns a function that unsubscribes. */
export const subscribeToTraces = <Trace>(operation: 'acquire' | 'run', listeners: TraceListeners<Trace>) =>
  subscribeToAll((name) => `tracing:nestjs-distributed-lock:${operation}:${name}`, listeners);

function subscribeToAll(channelOf: (name: string) => string, listeners: object): () => void {
  const entries = (Object.entries(listeners) as [string, (message: unknown) => void][]).map(
    // The second argument of a subscriber is the name of the channel, which no listener expects.
    ([name, listener]) => [channelOf(name), (message: unknown) => listener(message)] as const,
  );
  for (const [name, subscriber] of entries) subscribe(name, subscriber);
  return () => {
    for (const [name, subscriber] of entries) unsubscribe(name, subscriber);
  };
}
