import type { DistributedLockFactoryOptions } from 'nestjs-distributed-lock';
import { redisBackend } from 'nestjs-distributed-lock/redis';
import { typeormBackend } from 'nestjs-distributed-lock/typeorm';
import type { DataSource, DataSourceOptions } from 'typeorm';
import type { Settings } from '../settings/settings.js';

/**
 * How long a killed replica blocks a product. Short, because this is a demonstration; in production the default of 30 s
 * leaves room for pauses.
 */
export const LEASE_MS = 2_000;

/** The table of locks, beside those of the shop. */
export const lockTable = ({ run }: Settings): string => `${run}_distributed_lock`;

/** On a server the locks lie beside the data: nothing else has to be run. SQLite has one writer a file, so there they have their own. */
export function lockOptions(settings: Settings, dataSource: DataSource): DistributedLockFactoryOptions {
  const { backend, url, run, replica } = settings;
  return {
    backend:
      backend === 'redis'
        ? redisBackend({ url })
        : typeormBackend({ dataSource: databaseOfLocks(settings, dataSource), table: lockTable(settings) }),
    namespace: run,
    instance: replica,
    // In a flash sale, many callers wait for one product.
    defaults: { leaseMs: LEASE_MS, waitMs: 20_000 },
    shutdown: { drainMs: 2_000, abortGraceMs: 500 },
  };
}

const databaseOfLocks = ({ backend, file }: Settings, dataSource: DataSource) =>
  backend === 'sqlite'
    ? ({ ...dataSource.options, database: `${file}.locks` } as DataSourceOptions)
    : dataSource;
