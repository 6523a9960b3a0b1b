import { describe, expect, it } from 'vitest';
import { LockHandle } from '../../../lib/core/leases/lock-handle.js';
import { SettableClock } from '../../../lib/testing/settable-clock.js';
import { ScriptedBackend } from '../scripted-backend.js';
import { lockFixture, locksOn } from './lock-fixture.js';

const tickNow = (wallMs: number) => ({ tickMs: wallMs, maxEarlyMs: 500, staleAfterMs: 60_000 });

describe('the claim of a tick', () => {
  it('has a longer timeout than tryAcquire', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 4_000 });
    const claiming = ours.jobs.claimTick('job', { tick: tickNow(clock.wallMs()) });
    await clock.advance(4_000);
    expect(await claiming).toBeInstanceOf(LockHandle);
  });

  it('is repeated by the same run if its result was lost', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { loseAnswer: true });
    const claimed = await ours.jobs.claimTick('job', { tick: tickNow(clock.wallMs()) });
    expect(claimed).toBeInstanceOf(LockHandle);
    expect(backend.count('release')).toBe(0);
  });

  it('is withdrawn if it may have taken effect, also when the retry was never sent', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { loseAnswer: true });
    backend.next('acquire', { refuse: true });
    expect(await ours.jobs.claimTick('job', { tick: tickNow(clock.wallMs()) })).toMatchObject({
      kind: 'unknown',
    });
    await clock.advance(0);
    expect(await backend.inspect('lock/job:job')).toBeNull();
  });

  it('is withdrawn if it may take effect later, also when the retry was refused', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    const running = (await theirs.jobs.claimTick('job', {
      tick: tickNow(clock.wallMs() - 1_000),
    })) as LockHandle;
    backend.next('acquire', { loseAnswer: true });
    const taken = await ours.jobs.claimTick('job', { tick: tickNow(clock.wallMs()) });
    expect(taken).toMatchObject({ kind: 'taken' });
    await clock.advance(0);
    expect(backend.count('release')).toBe(1);
    expect(running.isValid()).toBe(true);
  });

  it('is withdrawn until the lease of the first claim ends, also when the retry waited for a lane in vain', async () => {
    const clock = new SettableClock();
    const backend = Object.assign(new ScriptedBackend({ clock }), { lanes: 1, maxBatchSize: 1 });
    const ours = locksOn(backend);
    // The process has run for longer than a lease.
    await clock.advance(300_000);
    backend.next('acquire', { delayRequestMs: 1, loseAnswer: true });
    backend.next('acquire', { delayAnswerMs: 15_000 });
    const claiming = ours.jobs.claimTick('job', { tick: tickNow(clock.wallMs()) });
    await clock.advance(0);
    const other = ours.acquire('other', { waitMs: 60_000 }).catch(() => undefined);
    await clock.advance(6_000);
    expect(await claiming).toMatchObject({ kind: 'unknown' });
    await clock.advance(14_000);
    await other;
    expect(await backend.inspect('lock/job:job')).toBeNull();
  });

  it('that waited for a lane does not lose its lock when the reply comes after its time', async () => {
    const clock = new SettableClock();
    const backend = Object.assign(new ScriptedBackend({ clock }), { lanes: 1, maxBatchSize: 1 });
    const ours = locksOn(backend);
    backend.next('acquire', { delayAnswerMs: 3_000 });
    backend.next('acquire', { delayAnswerMs: 2_100 });
    const other = ours.acquire('other');
    await clock.advance(0);
    const claiming = ours.jobs.claimTick('job', { tick: tickNow(clock.wallMs()) });
    await clock.advance(7_000);
    await other;
    const claimed = await claiming;
    const isHeld = (await backend.inspect('lock/job:job')) !== null;
    expect(isHeld).toBe(claimed instanceof LockHandle && claimed.isValid());
  });

  it('is withdrawn if the reply that grants it comes too late', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 7_000 });
    const claiming = ours.jobs.claimTick('job', { tick: tickNow(clock.wallMs()) });
    await clock.advance(8_000);
    expect(await claiming).toMatchObject({ kind: 'unknown' });
    expect(await backend.inspect('lock/job:job')).toBeNull();
  });

  it('without a tick leaves no lock behind when its first request arrives after the run', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { loseConnection: true, landsAfterMs: 1_000 });
    const run = (await ours.jobs.claimTick('job', {})) as LockHandle;
    await run.release();
    await clock.advance(3_000);
    expect(await backend.inspect('lock/job:job')).toBeNull();
  });

  it('is unknown if the store does not answer', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { refuse: true }, Infinity);
    expect(await ours.jobs.claimTick('job', { tick: tickNow(clock.wallMs()) })).toMatchObject({
      kind: 'unknown',
    });
  });

  it('is left to expire if it was lost, because a takeover counts from the end of its lease', async () => {
    const { backend, clock, ours } = lockFixture();
    const run = (await ours.jobs.claimTick('job', { tick: tickNow(clock.wallMs()) })) as LockHandle;
    backend.next('renew', { loseAnswer: true }, Infinity);
    while (run.isValid()) await clock.advance(1_000);
    await run.release();
    await clock.advance(0);
    expect(backend.count('release')).toBe(0);
    expect(await backend.inspect('lock/job:job')).not.toBeNull();
  });
});
