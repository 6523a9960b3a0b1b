import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { execaNode } from 'execa';
import { ROOT } from './sources.js';

const NEST = ['@nestjs/common', '@nestjs/core', '@nestjs/schedule', 'reflect-metadata', 'rxjs', 'cron'];

/** What stands behind each entry point at run time, and which packages may be there when it opens. */
const ENTRY_POINTS: Record<string, { exports: string[]; packages: string[] }> = {
  '.': {
    exports: [
      'CronRuns',
      'DistributedLockModule',
      'InjectCronRuns',
      'InjectLeaderElection',
      'InjectLockService',
      'LeaderElection',
      'LeaderOnly',
      'LockConfigError',
      'LockError',
      'LockExceptionFilter',
      'LockLostError',
      'LockReentryError',
      'LockService',
      'LockShutdownError',
      'LockTimeoutError',
      'LockUnavailableError',
      'Locked',
      'OnElected',
      'OnRevoked',
      'SingletonCron',
      'currentLock',
      'lockKey',
      'getCronRunsToken',
      'getLeaderElectionToken',
      'getLockServiceToken',
    ],
    packages: NEST,
  },
  './redis': {
    exports: ['RedisBackend', 'RedlockBackend', 'fencedGet', 'fencedSet', 'redisBackend', 'redlockBackend'],
    packages: ['ioredis'],
  },
  './typeorm': {
    exports: [
      'CreateDistributedLock1700000000000',
      'FencingToken',
      'TypeormBackend',
      'claimRow',
      'distributedLockEntity',
      'distributedLockMigration',
      'fencedFindOne',
      'fencedUpdate',
      'optimisticUpdate',
      'transactionLock',
      'typeormBackend',
      'withLockedTransaction',
      'withRowLock',
    ],
    packages: ['typeorm', 'reflect-metadata'],
  },
  './etcd': {
    exports: ['EtcdBackend', 'etcdBackend'],
    packages: ['@grpc/grpc-js', '@grpc/proto-loader'],
  },
  './zookeeper': { exports: ['ZookeeperBackend', 'zookeeperBackend'], packages: [] },
  './memory': { exports: ['MemoryBackend', 'memoryBackend'], packages: [] },
  './testing': {
    exports: ['LockControl', 'LockTestingModule', 'SettableClock', 'backendLaws'],
    packages: NEST,
  },
  './terminus': { exports: ['LockHealthIndicator'], packages: [...NEST, '@nestjs/terminus'] },
  './opentelemetry': { exports: ['instrumentLocks'], packages: ['@opentelemetry/api'] },
  './board': { exports: ['LockBoardModule'], packages: NEST },
};

describe('the entry points of the built package', () => {
  it.each(Object.entries(ENTRY_POINTS))(
    '%s opens with only its own packages, and shows what it should',
    async (entryPoint, expected) => {
      const args = [`nestjs-distributed-lock${entryPoint.slice(1)}`, JSON.stringify(expected.packages)];
      const file = join(ROOT, 'test/structure/list-exports.js');
      const nodeOptions = ['--no-warnings'];
      const { stdout } = await execaNode(file, args, { cwd: ROOT, nodeOptions });
      expect(JSON.parse(stdout)).toEqual([...expected.exports].sort());
    },
  );

  it('are all that the manifest names', () => {
    const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { exports: object };
    expect(Object.keys(manifest.exports)).toEqual([...Object.keys(ENTRY_POINTS), './package.json']);
  });
});
