import { afterEach, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import { CronRuns, DistributedLockModule } from '../../lib/index.js';
import { storeKinds } from '../support/store-kinds.js';
import { backendOn } from '../support/stores.js';

const apps: TestingModule[] = [];
afterEach(async () => {
  for (const app of apps.splice(0)) await app.close();
});

/** A call of its timer claims the tick of the last full hour. */
const HOURLY = { cronTime: '0 * * * *', timeZone: 'UTC', onDeadRun: 'retry' } as const;

/** What Redis has to be told, as it would forget everything. */
const KEEP_DATA = { redis: ['--appendonly', 'yes', '--appendfsync', 'always'], postgres: [], mariadb: [] };

it.each(storeKinds)(
  'a pause holds across a restart of all replicas and of $name',
  async ({ name, start, storeAt }) => {
    const runs: Date[] = [];
    const bootReplicas = async (url: string) => {
      const booting = [1, 2].map(async () => {
        const backend = backendOn(storeAt(url));
        const app = await Test.createTestingModule({
          imports: [DistributedLockModule.forRoot({ backend })],
        }).compile();
        apps.push(app);
        await app.init();
        const cronRuns = app.get(CronRuns);
        return { cronRuns, onTick: cronRuns.guard('hourly', HOURLY, ({ tick }) => void runs.push(tick)) };
      });
      return Promise.all(booting);
    };
    const server = await start({ args: KEEP_DATA[name] });
    try {
      const [first] = await bootReplicas(server.url);
      await first!.cronRuns.pause('hourly');
      for (const app of apps.splice(0)) await app.close();
      server.kill('SIGKILL');
      await server.exited;
      const { port, dataDir } = server;
      const again = await start({ args: KEEP_DATA[name], port, dataDir });
      try {
        for (const { cronRuns, onTick } of await bootReplicas(again.url)) {
          expect(await cronRuns.jobs()).toMatchObject([{ key: 'hourly', isPaused: true }]);
          await onTick();
        }
        expect(runs).toEqual([]);
        for (const app of apps.splice(0)) await app.close();
      } finally {
        await again.stop();
      }
    } finally {
      await server.stop();
    }
  },
  60_000,
);
