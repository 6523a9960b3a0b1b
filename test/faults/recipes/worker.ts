import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { type INestApplicationContext, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DistributedLockModule, LeaderElection } from '../../../lib/index.js';
import { backendOn } from '../../support/stores.js';
import type { Driver, Observer, RecipeContext } from './drivers/driver.js';
import { fencedWriteDriver, fencedWriteObserver } from './drivers/fenced-write.js';
import { jobDriver } from './drivers/job.js';
import { leaderDriver } from './drivers/leader.js';
import { lockingDriver } from './drivers/locking.js';
import { taskClaimDriver, taskClaimObserver } from './drivers/task-claim.js';
import type { Command, DriverName, WorkerMessage, WorkerTask } from './messages.js';
import { Runtime } from './runtime.js';

/** A process that runs a recipe as an application of a user would, and strikes itself where it is told to. */
const drivers: Readonly<Record<DriverName, (context: RecipeContext) => Promise<Driver> | Driver>> = {
  locking: lockingDriver,
  'fenced-write': fencedWriteDriver,
  'task-claim': taskClaimDriver,
  job: jobDriver,
  leader: leaderDriver,
};
const observers: Partial<Record<DriverName, (context: RecipeContext) => Promise<Observer>>> = {
  'fenced-write': fencedWriteObserver,
  'task-claim': taskClaimObserver,
};
const PAUSE_MS = 2;
/** How long whatever the recipe calls over the network takes. */
const FETCH_MS = 5;

const task = JSON.parse(process.argv[2]!) as WorkerTask;
const sendToParent = (message: WorkerMessage) => void process.send?.(message);
const runtime = new Runtime(sendToParent);
const realFetch = globalThis.fetch;
Object.assign(globalThis, { recipe__: runtime, fetch: fetchFor });

const exported = (await import(task.module)) as Record<string, unknown>;
const context = { ...task, exported };
if (task.role === 'observer') await observe();
else await work();

async function observe(): Promise<void> {
  const observer = await observers[task.driver]!(context);
  process.on('message', (command: Command) => {
    if ('read' in command) void observer.read(command.read).then((contents) => sendToParent({ contents }));
    if ('close' in command) void observer.close().then(() => process.exit());
  });
  sendToParent({ ready: true });
}

async function work(): Promise<void> {
  let round = 0;
  const closing = new AbortController();
  process.on('message', (command: Command) => {
    if ('round' in command) round = command.round;
    if ('pause' in command) round = 0;
    if ('arm' in command) runtime.arm(command.arm);
    if ('disarm' in command) runtime.arm(undefined);
    if ('close' in command) closing.abort();
  });
  const driver = await drivers[task.driver](context);
  const app = await start(driver);
  sendToParent({ ready: true });
  let isIdle = false;
  for (let number = 1; !closing.signal.aborted; number += 1) {
    if (round > 0) {
      isIdle = false;
      await callOnce(app, driver, { number, round });
    } else if (!isIdle) {
      isIdle = true;
      sendToParent({ idle: true });
    }
    await sleep(PAUSE_MS);
  }
  await app.close();
  await driver.close?.();
  process.exit();
}

async function start({ providers, imports = [], join, started }: Driver): Promise<INestApplicationContext> {
  const { locks, namespace, leaseMs, waitMs } = task;
  const backend = backendOn(locks);

  @Module({
    imports: [
      DistributedLockModule.forRoot({ backend, namespace, defaults: { leaseMs, waitMs } }),
      ...imports,
    ],
    providers: [...providers],
  })
  class AppModule {
    constructor(elections: LeaderElection) {
      join?.(elections);
    }
  }
  const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
  await started?.(app);
  return app;
}

async function callOnce(
  app: INestApplicationContext,
  driver: Driver,
  { number, round }: { readonly number: number; readonly round: number },
): Promise<void> {
  const { details, make } = await driver.next(app, round);
  sendToParent({ began: number, details });
  runtime.call = number;
  try {
    const value = await make();
    sendToParent({ over: number, outcome: 'ok', ...(typeof value === 'number' && { value: `${value}` }) });
  } catch (error) {
    const { code, name, message } = error as { code?: string; name: string; message: string };
    sendToParent({ over: number, outcome: code ?? `${name}: ${message}` });
  }
}

/** The queue of the recipe is one of ours; all else answers after a moment. */
async function fetchFor(url: string, options: RequestInit = {}): Promise<unknown> {
  const { host, pathname, search } = new URL(url);
  const { signal } = options;
  if (host !== 'queue.example') return sleep(FETCH_MS, undefined, signal ? { signal } : {});
  const headers = { 'x-worker': `${process.pid}` };
  return realFetch(`${task.queueUrl}${pathname}${search}`, { ...options, headers });
}
