import { afterEach, expect, it } from 'vitest';
import { channel } from 'node:diagnostics_channel';
import { RecentEvents } from '../../../lib/board/recent-events.js';

const source = { namespace: 'shop', instance: 'shop-1', backend: 'memory', module: 'default' };
const publish = (event: string, fields: object) =>
  channel(`nestjs-distributed-lock:${event}`).publish({ ...source, ...fields });

let events: RecentEvents;
afterEach(() => events.close());

it('ticks that are skipped as they should be are not shown', () => {
  events = new RecentEvents(source, Date.now);
  for (const reason of ['taken', 'not-leader', 'paused', 'overlap'])
    publish('tick-skipped', { job: 'report', reason });
  expect(events.all).toMatchObject([{ event: 'tick-skipped', detail: 'overlap', count: 1 }]);
});

it('jobs that fail alike are told apart, and a fault of the store is one line', () => {
  events = new RecentEvents(source, Date.now);
  for (const job of ['billing', 'report', 'report']) {
    publish('tick-ended', { job, outcome: 'failed', durationMs: 3, error: new Error('boom') });
  }
  publish('order-inverted', { key: 'stock:1', heldKey: 'order:1' });
  for (const key of ['a', 'b'])
    publish('unavailable', { key, operation: 'acquire', cause: new Error('down') });
  expect(events.all).toMatchObject([
    { event: 'unavailable', subject: 'b', count: 2 },
    { event: 'order-inverted', subject: 'stock:1', isFault: true },
    { event: 'tick-ended', subject: 'report', count: 2 },
    { event: 'tick-ended', subject: 'billing', count: 1 },
  ]);
});
