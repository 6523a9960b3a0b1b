import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { expect, it, onTestFinished } from 'vitest';
import type { AcquireOptions } from '../../../../lib/core/options.js';
import { lockFixture } from '../lock-fixture.js';

/** `instanceof` throws on both. */
const REASONS: Record<string, () => object> = {
  'a revoked proxy': () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    return proxy;
  },
  'a proxy without a readable prototype': () =>
    new Proxy(
      {},
      {
        getPrototypeOf: () => {
          throw new Error('unreadable');
        },
      },
    ),
};

const STARTED = 'tracing:nestjs-distributed-lock:acquire:start';

const KINDS: Record<string, { key: string | string[]; options: AcquireOptions; holder: AcquireOptions }> = {
  'a plain lock': { key: 'a', options: {}, holder: {} },
  'several keys': { key: ['a', 'b'], options: {}, holder: {} },
  'a permit': { key: 'a', options: { permits: 1 }, holder: { permits: 1 } },
  'a read lock': { key: 'a', options: { mode: 'read' }, holder: { mode: 'write' } },
  'a write lock': { key: 'a', options: { mode: 'write' }, holder: { mode: 'read' } },
};

const cases = Object.entries(KINDS).flatMap(([kind, params]) =>
  Object.entries(REASONS).map(([reason, create]) => ({ kind, reason, create, ...params })),
);

it.each(cases)(
  'a caller that waits for $kind rejects with the reason of its signal, even with $reason',
  async ({ key, options, holder, create }) => {
    const { ours, theirs, clock } = lockFixture();
    await theirs.acquire('a', holder);
    const leaving = new AbortController();
    const { signal } = leaving;
    const failed = ours.acquire(key, { ...options, signal, waitMs: 60_000 }).then(
      () => expect.fail('Expected the call to reject.'),
      (error: unknown) => Object.is(error, signal.reason),
    );
    await clock.advance(500);
    leaving.abort(create());
    expect(await failed).toBe(true);
  },
);

it.each(Object.entries(KINDS))(
  'a caller whose signal is aborted by a subscriber does not wait for %s',
  async (_kind, { key, options, holder }) => {
    const { ours, theirs, clock } = lockFixture();
    await theirs.acquire('a', holder);
    const leaving = new AbortController();
    const leave = () => leaving.abort(new Error('left'));
    subscribe(STARTED, leave);
    onTestFinished(() => {
      unsubscribe(STARTED, leave);
    });
    const acquiring = ours.acquire(key, { ...options, signal: leaving.signal, waitMs: 60_000 });
    const failed = acquiring.catch((error: unknown) => error);
    await clock.advance(500);
    expect(await Promise.race([failed, Promise.resolve('waiting')])).toMatchObject({ message: 'left' });
  },
);
