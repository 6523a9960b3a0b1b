import { afterEach, describe, expect, it } from 'vitest';
import type { INestApplication } from '@nestjs/common';
import { memoryBackend } from '../../../lib/backends/memory/index.js';
import { CronRuns, type GuardedTick } from '../../../lib/index.js';
import { Gate } from '../../support/gate.js';
import {
  type AdapterName,
  OpenStream,
  PasswordGuard,
  PasswordModule,
  bootBoard,
  postAction,
} from './board-application.js';

let app: INestApplication | undefined;
const streams: OpenStream[] = [];
afterEach(async () => {
  for (const stream of streams.splice(0)) stream.close();
  await app?.close();
  app = undefined;
});

const ACTIONS = ['run', 'pause', 'resume'] as const;
const KEY = '<img src=x onerror=alert(1)>';

interface ShownJob {
  readonly key: string;
  readonly schedule: string;
  readonly isPaused: boolean;
  readonly running: readonly object[];
  readonly runs: readonly { readonly outcome: string; readonly isManual: boolean }[];
}

describe.each<AdapterName>(['Express', 'Fastify'])('on %s', (adapter) => {
  const runs: Date[] = [];
  let work: () => unknown;
  /** Without a reference, the job would be garbage-collected. */
  let onTick: GuardedTick | undefined;
  afterEach(() => onTick?.[Symbol.dispose]());

  async function boot(...[options]: [Parameters<typeof bootBoard>[1]?]) {
    runs.length = 0;
    work = () => undefined;
    const booted = await bootBoard(adapter, options);
    app = booted.app;
    onTick = app.get(CronRuns).guard(KEY, { cronTime: '0 3 * * *', timeZone: 'UTC' }, async ({ tick }) => {
      runs.push(tick);
      await work();
    });
    return booted.url;
  }

  const isPaused = async () => (await app!.get(CronRuns).history(KEY)).isPaused;

  it('a job is run, paused and resumed, and the page shows it', async () => {
    const url = await boot({ actions: 'all' });
    const stream = await OpenStream.open(url);
    streams.push(stream);
    const shows = (isExpected: (job: ShownJob) => boolean) =>
      stream.next('jobs', ({ jobs }) => (jobs as ShownJob[]).some(isExpected));
    await shows(({ key, schedule }) => key === KEY && schedule === '0 3 * * *');
    const gate = new Gate();
    work = () => gate.passed;
    // The reply does not wait for the end of the run.
    expect(await postAction(url, 'run', { job: KEY })).toBe(200);
    await shows(({ running }) => running.length === 1);
    // A second one starts none.
    expect(await postAction(url, 'run', { job: KEY })).toBe(200);
    gate.open();
    await shows(({ runs: [last] }) => last?.outcome === 'completed' && last.isManual);
    expect(runs).toHaveLength(1);
    expect(await postAction(url, 'pause', { job: KEY })).toBe(200);
    expect(await isPaused()).toBe(true);
    await shows(({ isPaused: isShown }) => isShown);
    expect(await postAction(url, 'resume', { job: KEY })).toBe(200);
    expect(await isPaused()).toBe(false);
    await shows(({ isPaused: isShown }) => !isShown);
  });

  it.each(ACTIONS)('the guard refuses %s', async (action) => {
    const url = await boot({ actions: 'all', guards: [PasswordGuard], imports: [PasswordModule] });
    expect(await postAction(url, action, { job: KEY })).toBe(401);
    expect(await postAction(url, action, { job: KEY }, { password: 'wrong' })).toBe(403);
    expect({ runs: runs.length, isPaused: await isPaused() }).toEqual({ runs: 0, isPaused: false });
    expect(await postAction(url, action, { job: KEY }, { password: 'right' })).toBe(200);
  });

  it.each(ACTIONS)('%s is refused unless the page itself sends it, as JSON, for a job', async (action) => {
    const url = await boot({ actions: 'all' });
    const send = (body: object | string, headers = {}) => postAction(url, action, body, headers);
    expect(await send({ job: KEY }, { 'sec-fetch-site': 'cross-site' })).toBe(403);
    expect(await send({ job: KEY }, { 'sec-fetch-site': null, origin: 'https://evil.example' })).toBe(403);
    expect(await send({ job: KEY }, { 'content-type': 'text/plain' })).toBe(415);
    for (const body of ['{}', '[]', '{"job":1}']) expect(await send(body)).toBe(400);
    expect(await send({ job: 'other' })).toBe(404);
    expect({ runs: runs.length, isPaused: await isPaused() }).toEqual({ runs: 0, isPaused: false });
  });

  it.each(ACTIONS)('there is no route for %s unless actions are allowed', async (action) => {
    expect(await postAction(await boot(), action, { job: KEY })).toBe(404);
    expect(runs).toEqual([]);
  });

  it('a store that does not answer is 503', async () => {
    const backend = memoryBackend();
    const url = await boot({ actions: 'all', backend });
    backend.readTicks = () => Promise.reject(new Error('down'));
    backend.setPaused = () => Promise.reject(new Error('down'));
    for (const action of ACTIONS) expect(await postAction(url, action, { job: KEY })).toBe(503);
    expect(runs).toEqual([]);
  });
});
