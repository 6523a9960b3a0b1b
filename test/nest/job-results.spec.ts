import { Readable } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { defer, of } from 'rxjs';
import { CronRuns, LockConfigError, SingletonCron, currentLock } from '../../lib/index.js';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function* produce() {
  yield await Promise.resolve(1);
}

const UNFINISHED: [string, () => unknown][] = [
  ['a Readable stream', () => Readable.from(produce())],
  ['an Observable', () => defer(() => of(1))],
  ['an async iterable', () => produce()],
];

/** An application with one decorated job that returns this. */
async function boot(work: () => unknown) {
  @Injectable()
  class Jobs {
    @SingletonCron('0 3 * * *', { key: 'export' })
    async run(): Promise<unknown> {
      return work();
    }
  }
  const app = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot()],
    providers: [Jobs],
  })
    .setLogger({ log: () => undefined, warn: () => undefined, error: () => undefined })
    .compile();
  closing.push(await app.init());
  return { control: app.get(LockControl), runs: app.get(CronRuns) };
}

describe.each(UNFINISHED)('a job that returns %s, whose work would go on without its lock', (kind, work) => {
  const failure = `The job 'export': expected a value that is complete when the work returns, got ${kind}`;
  const failed = { outcome: 'failed', error: expect.stringContaining(failure) };

  it('has failed, and its caller gets the error', async () => {
    const { control, runs } = await boot(work);
    const fired = control.fire('export');
    await expect(fired).rejects.toBeInstanceOf(LockConfigError);
    await expect(fired).rejects.toThrow(failure);
    expect((await runs.history('export')).runs).toMatchObject([failed]);
  });

  it('has failed if CronRuns.guard() guards it', async () => {
    const { runs } = await boot(() => undefined);
    const onTick = runs.guard('stream', { everyMs: 1_000 }, work);
    await onTick();
    const error = expect.stringContaining(`The job 'stream': expected a value that is complete`);
    expect((await runs.history('stream')).runs).toMatchObject([{ ...failed, error }]);
  });
});

it('a stream that a job returns is closed', async () => {
  const stream = Readable.from(produce());
  const { control } = await boot(() => stream);
  await control.fire('export').catch(() => undefined);
  expect(stream.destroyed).toBe(true);
});

it('a job may return data that it has read from a stream', async () => {
  const { control, runs } = await boot(async () => {
    const values: unknown[] = [];
    for await (const value of Readable.from(produce())) values.push(value, currentLock()?.isValid());
    return values;
  });
  expect(await control.fire('export')).toEqual([1, true]);
  expect((await runs.history('export')).runs).toMatchObject([{ outcome: 'completed', error: null }]);
});
