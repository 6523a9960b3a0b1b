import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { SessionLease } from '../../../../lib/backends/zookeeper/session/session-lease.js';
import { momentOf, systemClock } from '../../../../lib/core/clock.js';

const TICK_MS = 1_000;
const TIMEOUT_MS = 60_000;
const MINUTE_MS = 60_000;

/** A moment so long ago. */
const ago = (ms: number) => {
  const { monotonicMs, wallMs } = momentOf(systemClock);
  return { monotonicMs: monotonicMs - ms, wallMs: wallMs - ms };
};

const opened = (sentAt = ago(30_000)) => {
  const lease = new SessionLease(TICK_MS);
  lease.onConnected(sentAt, TIMEOUT_MS);
  return lease;
};

it('a session that was just opened counts once a majority has accepted a write', () => {
  const lease = opened();
  expect(lease.lasts(0)).toBe(false);
  lease.onReply(ago(0), true);
  expect(lease.lasts(29_000)).toBe(true);
  expect(lease.lasts(30_500)).toBe(false);
});

it('replies that no majority has agreed to prove nothing', () => {
  const lease = opened();
  for (let ms = 30_000; ms >= 0; ms -= 500) lease.onReply(ago(ms), false);
  expect(lease.lasts(0)).toBe(false);
});

it('a write proves only what its server had answered a tick before', () => {
  const lease = opened();
  lease.onReply(ago(0), false);
  // The reply before was answered just now, so the leader may not know of it.
  lease.onReply(ago(0), true);
  expect(lease.lasts(29_000)).toBe(true);
  expect(lease.lasts(31_000)).toBe(false);
});

it('a write a tick after a reply proves that the session lasts from the sending of that message on', () => {
  const lease = opened();
  lease.onReply(ago(10_000), false);
  // So much later than the reply, which was answered just now.
  lease.onReply(ago(-2 * TICK_MS), true);
  expect(lease.lasts(49_000)).toBe(true);
  expect(lease.lasts(51_000)).toBe(false);
});

it('what an earlier server has answered does not count over a later connection', () => {
  const lease = opened(ago(50_000));
  lease.onReply(ago(10_000), false);
  lease.onConnected(ago(40_000), TIMEOUT_MS);
  lease.onReply(ago(-2 * TICK_MS), true);
  expect(lease.lasts(19_000)).toBe(true);
  expect(lease.lasts(21_000)).toBe(false);
});

it('a late reply does not shorten what is known', () => {
  const lease = opened(ago(10_000));
  lease.onReply(ago(0), true);
  lease.onConnected(ago(30_000), TIMEOUT_MS);
  lease.onReply(ago(0), true);
  expect(lease.lasts(49_000)).toBe(true);
});

it('after a sleep of the machine nothing is known, until a write proves it again', () => {
  const { monotonicMs, wallMs } = ago(5_000);
  const lease = opened({ monotonicMs, wallMs: wallMs - MINUTE_MS });
  lease.onReply(ago(0), true);
  expect(lease.lasts(0)).toBe(false);
});

it('replies without any write are not remembered for ever', () => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const lease = opened(ago(0));
  const replyEverySecond = (seconds: number) => {
    for (let second = 0; second < seconds; second += 1) lease.onReply(ago(-second * 1_000), false);
    collectGarbage();
    return process.memoryUsage().heapUsed;
  };
  const before = replyEverySecond(1_000);
  // 300,000 replies would be about 50 MB.
  expect(replyEverySecond(300_000) - before).toBeLessThan(5_000_000);
  expect(lease.lasts(0)).toBe(false);
});
