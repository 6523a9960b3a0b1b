import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** Where the locks of an application are kept, as its source says it. */
export interface EntryPoint {
  readonly name: 'memory' | 'redis' | 'typeorm' | 'etcd' | 'zookeeper';
  /** What it imports besides. */
  readonly imports: string;
  readonly backend: string;
}

export const MEMORY: EntryPoint = { name: 'memory', imports: '', backend: 'memoryBackend()' };

/**
 * What a new user adds to an application of the Nest CLI: a service with a lock and a job, the modules, and a spec of its
 * own. The files of the CLI stay as they are, but for the root module.
 */
export function additions({ name, imports, backend }: EntryPoint, { isEsm }: { isEsm: boolean }) {
  const js = isEsm ? '.js' : '';
  return {
    'src/shop.service.ts': `
      import { Injectable } from '@nestjs/common';
      import { type CronRun, currentLock, Locked, LockService, SingletonCron } from 'nestjs-distributed-lock';

      @Injectable()
      export class ShopService {
        constructor(private readonly locks: LockService) {}

        @Locked('product:{0}')
        async buy(productId: string): Promise<string> {
          return \`sold \${productId} under \${currentLock()?.key}\`;
        }

        @SingletonCron('0 3 * * *')
        async report({ tick }: CronRun): Promise<void> {
          await this.locks.withLock('report', (lock) => console.log(tick.toISOString(), lock.fencingToken));
        }
      }`,
    'src/app.module.ts': `
      import { Module } from '@nestjs/common';
      import { ScheduleModule } from '@nestjs/schedule';
      import { DistributedLockModule } from 'nestjs-distributed-lock';
      import { ${name}Backend } from 'nestjs-distributed-lock/${name}';
      ${imports}
      import { AppController } from './app.controller${js}';
      import { AppService } from './app.service${js}';
      import { ShopService } from './shop.service${js}';

      @Module({
        imports: [ScheduleModule.forRoot(), DistributedLockModule.forRoot({ backend: ${backend} })],
        controllers: [AppController],
        providers: [AppService, ShopService],
      })
      export class AppModule {}`,
    'src/shop.service.spec.ts': `
      import { ScheduleModule } from '@nestjs/schedule';
      import { Test } from '@nestjs/testing';
      import { LockService } from 'nestjs-distributed-lock';
      import { LockControl, LockTestingModule } from 'nestjs-distributed-lock/testing';
      import { ShopService } from './shop.service${js}';

      it('sells under a lock', async () => {
        const app = await Test.createTestingModule({
          imports: [ScheduleModule.forRoot(), LockTestingModule.forRoot()],
          providers: [ShopService],
        }).compile();
        await app.init();
        expect(app.get(LockService)).toBeInstanceOf(LockService);
        expect(app.get(LockControl)).toBeInstanceOf(LockControl);
        expect(await app.get(ShopService).buy('tea')).toBe('sold tea under product:tea');
        await app.close();
      });`,
    'test/shop.e2e-spec.ts': `
      import { Test } from '@nestjs/testing';
      import { AppModule } from './../src/app.module${js}';
      import { ShopService } from './../src/shop.service${js}';

      it('sells in the whole application', async () => {
        const module = await Test.createTestingModule({ imports: [AppModule] }).compile();
        const app = module.createNestApplication();
        await app.init();
        expect(await app.get(ShopService).buy('tea')).toBe('sold tea under product:tea');
        await app.close();
      });`,
  };
}

export async function writeFiles(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    const file = join(folder, name);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, `${text}\n`);
  }
}
