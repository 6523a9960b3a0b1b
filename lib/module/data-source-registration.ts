import type { DiscoveryService } from '@nestjs/core';
import { registerLocks } from '../core/data-source-registry.js';
import type { Locks } from '../core/locks.js';
import type { ResolvedModuleOptions } from '../distributed-lock.options.js';

interface LockModule {
  readonly name: string | undefined;
  readonly options: ResolvedModuleOptions;
  readonly locks: Locks;
  readonly discovery: DiscoveryService;
}

/**
 * Registers the data sources of the application and of the backend. Transactions then find the locks, and an open
 * transaction is noticed when a lock is released. Returns functions that end this.
 */
export function registerDataSources({ name, options, locks, discovery }: LockModule): (() => void)[] {
  const provided = discovery.getProviders().map(({ instance }) => instance as unknown);
  const sources = [...new Set([options.backend.dataSource, ...provided])].filter(isDataSource);
  return sources.flatMap((source) => [
    registerLocks(source, { locks, isUnnamed: name === undefined }),
    locks.watchTransactions(source),
  ]);
}

/** Recognizes a `DataSource` by its properties: the main entry point must load without TypeORM. */
const isDataSource = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && 'createQueryRunner' in value && 'manager' in value;
