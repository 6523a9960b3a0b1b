import { afterEach, describe, expect, it } from 'vitest';
import { Injectable, type Type } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  type CronRun,
  DistributedLockModule,
  LeaderElection,
  LeaderOnly,
  type LeaderTerm,
  type Lock,
  LockConfigError,
  OnElected,
  SingletonCron,
  currentLock,
} from '../../lib/index.js';
import { until } from '../support/until.js';

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function boot(provider: Type, backend = new MemoryBackend()): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend }), ScheduleModule.forRoot()],
    providers: [provider],
  })
    .setLogger({ log: () => undefined, warn: () => undefined, error: () => undefined })
    .compile();
  closing.push(app);
  return app.init();
}

/** Ways to release a lock, each with the error that it throws, if any. */
const release = async (lock: Lock): Promise<unknown> => lock.release().catch((error: unknown) => error);
const dispose = async (lock: Lock): Promise<void> => lock[Symbol.asyncDispose]();

@Injectable()
class Boss {
  refusal: unknown;
  isValidAfter: boolean | undefined;

  @OnElected('boss')
  async lead(_: LeaderTerm): Promise<void> {
    this.refusal = await release(currentLock()!);
    await dispose(currentLock()!);
    this.isValidAfter = currentLock()!.isValid();
  }

  @LeaderOnly('boss')
  async decide(): Promise<unknown> {
    return release(currentLock()!);
  }
}

describe('the lock of a term', () => {
  it('cannot be released by its work, which gets an error; the leader stays leader', async () => {
    const app = await boot(Boss);
    const boss = app.get(Boss);
    await until(() => boss.isValidAfter !== undefined);
    expect(boss.refusal).toBeInstanceOf(LockConfigError);
    expect((boss.refusal as Error).message).toMatch(/leadership "boss".*resign\(\)/);
    expect(boss.isValidAfter).toBe(true);
    expect(await boss.decide()).toBeInstanceOf(LockConfigError);
    const candidate = app.get(LeaderElection).join('boss');
    expect(candidate.isLeader()).toBe(true);
    await candidate.resign();
    expect(candidate.isLeader()).toBe(false);
  });

  it('can be extended manually', async () => {
    @Injectable()
    class Extending {
      remainingMs = 0;
      @OnElected('extending')
      async lead(): Promise<void> {
        await currentLock()!.extend(60_000);
        this.remainingMs = currentLock()!.remainingMs();
      }
    }
    const app = await boot(Extending);
    await until(() => app.get(Extending).remainingMs > 0);
    expect(app.get(Extending).remainingMs).toBeGreaterThan(30_000);
  });
});

describe('the lock of a run', () => {
  it('cannot be released by the run, which gets an error; no other attempt of its tick begins', async () => {
    @Injectable()
    class Job {
      readonly runs: CronRun[] = [];
      refusal: unknown;
      isValidAfter: boolean | undefined;

      @SingletonCron('* * * * * *', { onDeadRun: 'retry' })
      async work(run: CronRun): Promise<void> {
        this.runs.push(run);
        this.refusal = await release(currentLock()!);
        await dispose(currentLock()!);
        this.isValidAfter = currentLock()!.isValid();
      }
    }
    const app = await boot(Job);
    const job = app.get(Job);
    await until(() => job.runs.length >= 2);
    expect(job.refusal).toBeInstanceOf(LockConfigError);
    expect((job.refusal as Error).message).toMatch(/run of "Job\.work".*return from the method/);
    expect(job.isValidAfter).toBe(true);
    expect(job.runs.map(({ attempt }) => attempt)).toEqual(job.runs.map(() => 1));
  });
});
