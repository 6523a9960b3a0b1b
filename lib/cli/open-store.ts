import { NestFactory } from '@nestjs/core';
import type { LockBackend } from '../core/backend.js';
import { DistributedLockModule } from '../distributed-lock.module.js';
import { DEFAULT_NAMESPACE } from '../distributed-lock.options.js';
import { LockService } from '../lock.service.js';
import { CronRuns } from '../schedule/cron-runs.js';
import { UsageError } from './usage-error.js';

export interface StoreAddress {
  readonly url: string;
  readonly namespace: string | undefined;
  /** Of a database. */
  readonly table: string | undefined;
  /** Of Redis. */
  readonly keyPrefix: string | undefined;
}

export interface OpenStore extends AsyncDisposable {
  readonly locks: LockService;
  readonly cronRuns: CronRuns;
  readonly namespace: string;
}

const DATABASES: Readonly<Record<string, 'postgres' | 'mysql' | 'mariadb'>> = {
  'postgres:': 'postgres',
  'postgresql:': 'postgres',
  'mysql:': 'mysql',
  'mariadb:': 'mariadb',
};

/**
 * Opens the lock module on the store. Creates no table.
 *
 * @throws UsageError if the address cannot be one; LockConfigError or LockUnavailableError if the store cannot be used
 */
export async function openStore(address: StoreAddress): Promise<OpenStore> {
  const backend = await backendOf(address);
  const { namespace = DEFAULT_NAMESPACE } = address;
  const module = DistributedLockModule.forRoot({
    ...{ backend, namespace, instance: `cli:${process.pid}`, failOnBoot: true },
  });
  const application = await NestFactory.createApplicationContext(module, {
    logger: false,
    abortOnError: false,
  });
  return {
    locks: application.get(LockService),
    cronRuns: application.get(CronRuns),
    namespace,
    [Symbol.asyncDispose]: () => application.close(),
  };
}

/** The drivers are optional peers, so only the one in use is loaded. */
async function backendOf({ url, table, keyPrefix }: StoreAddress): Promise<LockBackend> {
  const protocol = URL.canParse(url) ? new URL(url).protocol : '';
  if (protocol === 'redis:' || protocol === 'rediss:') {
    if (table !== undefined) throw new UsageError('Redis has no option --table.');
    const { redisBackend } = await import('../backends/redis/single/redis-backend.js');
    const { Redis } = await import('ioredis');
    return redisBackend(
      keyPrefix === undefined ? { url } : { client: new Redis(url, { keyPrefix, lazyConnect: true }) },
    );
  }
  const type = DATABASES[protocol];
  if (!type) {
    throw new UsageError(
      'Expected --url to begin with redis://, rediss://, postgres://, mysql:// or mariadb://.',
    );
  }
  if (keyPrefix !== undefined) throw new UsageError('A database has no option --key-prefix.');
  const { typeormBackend } = await import('../backends/typeorm/typeorm-backend.js');
  return typeormBackend({
    dataSource: { type, url },
    createTable: false,
    ...(table !== undefined && { table }),
  });
}
