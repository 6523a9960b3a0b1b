import { setMaxListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { LockShutdownError, LockTimeoutError, LockUnavailableError } from '../../../../lib/core/errors.js';
import { Events } from '../../../../lib/core/events.js';
import {
  type CompositeCall,
  CompositeAcquisition,
} from '../../../../lib/core/kinds/composite-acquisition.js';
import { PermitLines } from '../../../../lib/core/kinds/permit-lines.js';
import { SettableClock } from '../../../../lib/testing/settable-clock.js';
import { Gate } from '../../../support/gate.js';
import { until } from '../../../support/until.js';
import { lockFixture } from '../lock-fixture.js';

const BASE = 'lock/permit:pdf';

function fixture() {
  const clock = new SettableClock();
  const stopController = new AbortController();
  // As the engine does.
  setMaxListeners(0, stopController.signal);
  const lines = new PermitLines(clock, stopController.signal, 2);
  const events = new Events({ namespace: 'lock', instance: 'ours', backend: 'memory', module: 'default' });
  const order: number[] = [];
  const race = { outage: undefined as unknown };
  let racing = 0;
  let most = 0;
  /** A caller that races until its gate opens. */
  const call = (name: number, options: { waitMs?: number; signal?: AbortSignal } = {}) => {
    const { waitMs = 1_000, signal } = options;
    const gate = new Gate();
    const called: CompositeCall = {
      key: 'pdf',
      label: undefined,
      signal,
      waitMs,
      leaseMs: 1_000,
      renew: true,
    };
    const acquisition = new CompositeAcquisition(called, { clock, events, stopController } as never);
    const step = async () => {
      order.push(name);
      racing += 1;
      most = Math.max(most, racing);
      await gate.passed;
      racing -= 1;
      return null;
    };
    const done = acquisition.run(() =>
      lines.run(BASE, { call: called, acquisition, race: race as never }, step),
    );
    return { done, end: () => gate.open() };
  };
  return { clock, stopController, lines, order, race, call, most: () => most };
}

describe('callers of one process for permits', () => {
  it('ask for them a limited number at once, in the order of their calls', async () => {
    const { lines, order, call, most } = fixture();
    const callers = Array.from({ length: 20 }, (_, name) => call(name));
    expect(lines.countWaiters(BASE)).toBe(18);
    for (const { done, end } of callers) {
      end();
      await done;
    }
    expect(order).toEqual(callers.map((_, name) => name));
    expect(most()).toBe(2);
    expect(lines.countWaiters(BASE)).toBe(0);
  });

  it('give up in line after waitMs, and when their signal aborts', async () => {
    const { clock, lines, call } = fixture();
    const [first, second] = [call(1), call(2)];
    const patient = call(3, { waitMs: Infinity });
    const controller = new AbortController();
    const late = expect(call(4, { waitMs: 500 }).done).rejects.toThrow(LockTimeoutError);
    const aborted = expect(call(5, { signal: controller.signal }).done).rejects.toThrow('enough');
    controller.abort(new Error('enough'));
    await aborted;
    await clock.advance(500);
    await late;
    expect(lines.countWaiters(BASE)).toBe(1);
    for (const one of [first, second, patient]) {
      one.end();
      await one.done;
    }
  });

  it('are told about an outage of the store that nobody of them waited for', async () => {
    const { clock, race, call } = fixture();
    const racers = [call(1, { waitMs: Infinity }), call(2, { waitMs: Infinity })];
    race.outage = new Error('connection refused');
    const inLine = expect(call(3, { waitMs: 500 }).done).rejects.toThrow(LockUnavailableError);
    await clock.advance(500);
    await inLine;
    for (const { done, end } of racers) {
      end();
      await done;
    }
  });

  it.each(Array.from({ length: 16 }, (_, turns) => turns))(
    'pass their turn on if they give up when it comes (%i microtasks later)',
    async (turns) => {
      const { lines, order, call } = fixture();
      const [first, second] = [call(1), call(2)];
      const controller = new AbortController();
      const third = call(3, { signal: controller.signal });
      const next = call(4);
      first.end();
      for (let left = turns; left > 0; left -= 1) await Promise.resolve();
      controller.abort(new Error('enough'));
      for (const { end } of [second, third, next]) end();
      await Promise.allSettled([first.done, second.done, third.done, next.done]);
      expect(order.at(-1)).toBe(4);
      // No turn was lost, and none counted twice.
      const later = [call(5), call(6), call(7)];
      expect(lines.countWaiters(BASE)).toBe(1);
      for (const { done, end } of later) {
        end();
        await done;
      }
    },
  );

  it('are refused at shutdown', async () => {
    const { stopController, call } = fixture();
    const racers = [call(1), call(2)];
    const refused = expect(call(3).done).rejects.toThrow(LockShutdownError);
    stopController.abort(new LockShutdownError('The application is shutting down.'));
    await refused;
    for (const { done, end } of racers) {
      end();
      await done;
    }
  });

  it('get LockUnavailableError in an outage, whether they ask or wait in line', async () => {
    const { clock, backend, ours, theirs } = lockFixture();
    await theirs.acquire('pdf', { permits: 1 });
    const early = Array.from({ length: 70 }, () =>
      ours.acquire('pdf', { permits: 1, waitMs: 10_000 }).catch((error: unknown) => error),
    );
    await clock.advance(1_000);
    backend.execute = () => Promise.reject(new Error('connection refused'));
    await clock.advance(10_000);
    for (const error of await Promise.all(early)) expect(error).toBeInstanceOf(LockUnavailableError);
  });

  it('all get their turn, and are shown as waiting for each permit', async () => {
    const { ours, theirs } = lockFixture();
    const held = [await theirs.acquire('pdf', { permits: 2 }), await theirs.acquire('pdf', { permits: 2 })];
    let served = 0;
    const calls = Array.from({ length: 50 }, () =>
      ours.withLock('pdf', { permits: 2, waitMs: Infinity }, () => void (served += 1)),
    );
    await until(async () => {
      const seen = await ours.inspect('pdf');
      return seen?.holders?.every(({ waiting }) => waiting === 50) ?? false;
    });
    for (const lock of held) await lock.release();
    await Promise.all(calls);
    expect(served).toBe(50);
  });
});
