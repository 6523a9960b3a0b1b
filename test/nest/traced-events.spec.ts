import { type ChannelListener, subscribe, tracingChannel, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  type LockEventName,
  LockLostError,
  LockService,
  LockTimeoutError,
  Locked,
  SingletonCron,
} from '../../lib/index.js';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';

@Injectable()
class Shop {
  failure: Error | undefined;

  @Locked('order:{0}')
  async ship(order: string): Promise<string> {
    return order;
  }

  @Locked((order: string) => `parcel:${order}`)
  async pack(order: string): Promise<string> {
    return order;
  }

  @SingletonCron('0 3 * * *', { key: 'report-1' })
  async report(): Promise<void> {
    if (this.failure) throw this.failure;
  }
}

type Message = Readonly<Record<string, unknown>>;

let app: TestingModule;
let undo: (() => void)[] = [];

beforeEach(async () => {
  app = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot()],
    providers: [Shop],
  }).compile();
  app.useLogger(false);
  await app.init();
});

afterEach(async () => {
  await app.close();
  for (const stop of undo) stop();
  undo = [];
});

function collect(...names: LockEventName[]): [LockEventName, Message][] {
  const messages: [LockEventName, Message][] = [];
  for (const name of names) {
    const listen: ChannelListener = (message) => void messages.push([name, message as Message]);
    subscribe(`nestjs-distributed-lock:${name}`, listen);
    undo.push(() => unsubscribe(`nestjs-distributed-lock:${name}`, listen));
  }
  return messages;
}

function trace(name: 'acquire' | 'run', change: (context: Message) => void = () => undefined) {
  const steps: [string, Message][] = [];
  const on = (step: string) => (context: unknown) => {
    steps.push([step, { ...(context as Message) }]);
    if (step === 'start') change(context as Message);
  };
  const listeners = {
    ...{ start: on('start'), end: on('end'), error: on('error') },
    ...{ asyncStart: on('asyncStart'), asyncEnd: on('asyncEnd') },
  };
  const channel = tracingChannel(`nestjs-distributed-lock:${name}`);
  channel.subscribe(listeners);
  undo.push(() => channel.unsubscribe(listeners));
  return steps;
}

const names = (steps: readonly (readonly [string, Message])[]) => steps.map(([name]) => name);

it('locks are counted by the text of the decorator, or by the method if its key is a function', async () => {
  const messages = collect('acquired', 'released');
  await app.get(Shop).ship('42');
  await app.get(Shop).pack('42');
  expect(messages.map(([, { key, template }]) => [key, template])).toEqual([
    ...Array.from({ length: 2 }, () => ['order:42', 'order:{0}']),
    ...Array.from({ length: 2 }, () => ['parcel:42', 'Shop.pack']),
  ]);
});

it('a run is published with its start, its end and how it ended', async () => {
  const messages = collect('tick-claimed', 'tick-started', 'tick-ended');
  await app.get(LockControl).fire('report-1');
  expect(names(messages)).toEqual(['tick-claimed', 'tick-started', 'tick-ended']);
  const run = { job: 'report-1', template: 'report-1', attempt: 1, tick: expect.any(Date) };
  for (const [, message] of messages) expect(message).toMatchObject(run);
  expect(messages[2]?.[1]).toMatchObject({
    outcome: 'completed',
    durationMs: expect.any(Number),
    error: undefined,
  });
});

it('a run that throws is published as failed, with its error', async () => {
  const messages = collect('tick-ended');
  const failure = (app.get(Shop).failure = new Error('no paper'));
  await expect(app.get(LockControl).fire('report-1')).rejects.toBe(failure);
  expect(messages[0]?.[1]).toMatchObject({ outcome: 'failed', error: failure });
});

it('a run that throws because another lock was lost is published as failed', async () => {
  const messages = collect('tick-ended');
  const failure = (app.get(Shop).failure = new LockLostError('lost', { key: 'order:42' }));
  await expect(app.get(LockControl).fire('report-1')).rejects.toBe(failure);
  expect(messages[0]?.[1]).toMatchObject({ outcome: 'failed', error: failure });
});

it('an acquisition is traced from the call to the lock, with what it waited for', async () => {
  const steps = trace('acquire');
  const locks = app.get(LockService);
  const first = await locks.acquire('order:42');
  expect(names(steps)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd']);
  expect(steps[0]?.[1]).toMatchObject({
    key: 'order:42',
    template: 'order:{n}',
    module: 'default',
    isContended: false,
  });
  expect(steps[3]?.[1].result).toBe(first);
  const second = locks.acquire('order:42');
  await first.release();
  await (await second).release();
  expect(steps.at(-1)?.[1]).toMatchObject({ isContended: true });
});

it('an acquisition that fails is traced with its error, and one that asks once with its answer', async () => {
  const steps = trace('acquire');
  const locks = app.get(LockService);
  const held = await locks.acquire('key');
  expect(await locks.tryAcquire('key')).toBeNull();
  expect(steps.at(-1)?.[1]).toMatchObject({ waitMs: 0, result: null });
  await expect(locks.withLock('key', { waitMs: 0 }, () => 'never')).rejects.toBeInstanceOf(LockTimeoutError);
  expect(names(steps).slice(-5)).toEqual(['start', 'end', 'error', 'asyncStart', 'asyncEnd']);
  expect(steps.at(-1)?.[1].error).toBeInstanceOf(LockTimeoutError);
  await held.release();
});

it('a run is traced with its outcome, and a subscriber may call the method in a context of its own', async () => {
  let isActive = false;
  const steps = trace('run', (context) => {
    Object.assign(context, {
      activate: <T>(run: () => T) => {
        isActive = true;
        return run();
      },
    });
  });
  await app.get(LockControl).fire('report-1');
  expect(names(steps)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd']);
  expect(steps[0]?.[1]).toMatchObject({ job: 'report-1', attempt: 1, backend: 'memory' });
  expect(steps[3]?.[1]).toMatchObject({ outcome: 'completed' });
  expect(isActive).toBe(true);
});
