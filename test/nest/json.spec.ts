import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Controller, Get, type INestApplication, Injectable } from '@nestjs/common';
import { Cron } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import {
  type Candidate,
  type CronRun,
  CronRuns,
  LeaderElection,
  LockService,
  SingletonCron,
  currentLock,
} from '../../lib/index.js';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';
import { until } from '../support/until.js';

@Injectable()
class Jobs {
  @SingletonCron({ key: 'nightly' })
  @Cron('0 3 * * *')
  async nightly(run: CronRun): Promise<CronRun> {
    return run;
  }
}

@Controller()
class Board {
  readonly candidate: Candidate;

  constructor(
    private readonly locks: LockService,
    private readonly runs: CronRuns,
    private readonly control: LockControl,
    elections: LeaderElection,
  ) {
    this.candidate = elections.join('boss');
  }

  @Get('lock')
  lock(): Promise<unknown> {
    return this.locks.withLock('key', () => this.locks.inspect('key'));
  }

  @Get('leader')
  leader(): Promise<unknown> {
    return this.candidate.leader();
  }

  @Get('term')
  term(): unknown {
    return this.candidate.term();
  }

  @Get('history')
  history(): Promise<unknown> {
    return this.runs.history('nightly');
  }

  @Get('run')
  run(): Promise<unknown> {
    return this.control.fire('nightly', { tick: new Date(0) });
  }
}

let app: INestApplication;
beforeEach(async () => {
  const module = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot({ instance: 'web-1' })],
    controllers: [Board],
    providers: [Jobs],
  }).compile();
  app = module.createNestApplication({ logger: false });
  await app.listen(0, '127.0.0.1');
  const { candidate } = app.get(Board);
  await until(() => candidate.isLeader());
  await app.get(LockControl).fire('nightly', { tick: new Date(1_000) });
  await until(async () => (await app.get(CronRuns).history('nightly')).runs[0]?.ended !== null);
});
afterEach(() => app.close());

const TOKEN = expect.stringMatching(/^\d+$/);
const INSTANT = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/);
const LEFT = expect.any(Number);

const SENT: ['lock' | 'leader' | 'term' | 'history' | 'run', object][] = [
  [
    'lock',
    {
      ...{ key: 'key', holder: expect.any(String), instance: 'web-1', since: INSTANT, remainingMs: LEFT },
      ...{ fencingToken: TOKEN, waiting: 0 },
    },
  ],
  ['leader', { instance: 'web-1', since: INSTANT, term: TOKEN, remainingMs: LEFT }],
  ['term', { number: TOKEN }],
  [
    'history',
    {
      runs: [
        {
          ...{
            tick: '1970-01-01T00:00:01.000Z',
            attempt: 1,
            isManual: false,
            instance: 'web-1',
            fencingToken: TOKEN,
          },
          ...{ started: INSTANT, ended: INSTANT, outcome: 'completed', error: null },
        },
      ],
      nextTick: INSTANT,
      isPaused: false,
    },
  ],
  ['run', { tick: '1970-01-01T00:00:00.000Z', attempt: 1, fencingToken: TOKEN }],
];

it.each(['acquire', 'withLock', 'reentrant', 'run'])(
  'a lock is short in JSON and in a log: %s',
  async (way) => {
    const locks = app.get(LockService);
    const seen: unknown[] = [];
    const see = (lock: unknown) =>
      void seen.push(JSON.parse(JSON.stringify({ lock })), inspect(lock, { breakLength: Infinity }));
    if (way === 'run') await app.get(CronRuns).guard('other', { everyMs: 1_000 }, () => see(currentLock()))();
    else if (way === 'acquire') see(await locks.acquire('key'));
    else {
      await locks.withLock('key', (outer) =>
        way === 'withLock' ? see(outer) : locks.withLock('key', { reentrant: true }, see),
      );
    }
    const key = way === 'run' ? 'other' : 'key';
    expect(seen).toEqual([
      { lock: { key, fencingToken: TOKEN, remainingMs: LEFT } },
      expect.stringMatching(/^\{ key: '\w+', fencingToken: \d+n, remainingMs: [\d.]+ \}$/),
    ]);
  },
);

describe('what the services return', () => {
  it.each(SENT)('can be returned by a controller: %s', async (path, sent) => {
    const response = await fetch(`${await app.getUrl()}/${path}`);
    expect([response.status, await response.json()]).toEqual([200, sent]);
  });

  it.each(SENT)('can be serialized directly, without additional fields: %s', async (method, sent) => {
    const value = (await app.get(Board)[method]()) as object;
    expect(JSON.parse(JSON.stringify({ nested: [value] }))).toEqual({ nested: [sent] });
    expect(Object.keys(value)).not.toContain('toJSON');
    expect({ ...value }).toStrictEqual(value);
  });
});
