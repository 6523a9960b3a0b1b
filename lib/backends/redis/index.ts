export { RedisBackend, redisBackend } from './single/redis-backend.js';
export type { RedisBackendOptions } from './single/redis-options.js';
export type { ReplicaOptions } from './single/replica-acknowledgement.js';
export type { RedisSource } from './redis-source.js';
export { RedlockBackend, redlockBackend } from './quorum/redlock-backend.js';
export type { RedlockOptions } from './quorum/redlock-options.js';
export { type FencedSetOptions, fencedGet, fencedSet } from './fenced-values.js';
export type { Fence } from '../../core/fence.js';
