export { type RedisBackendOptions, RedisBackend, redisBackend } from './redis-backend.js';
export type { ReplicaOptions } from './replicas.js';
export type { RedisSource } from './connection.js';
export { RedlockBackend, redlockBackend } from './quorum/redlock-backend.js';
export type { RedlockOptions } from './quorum/redlock-options.js';
export { fencedGet } from './resource/fenced-get.js';
export { type FencedSetOptions, fencedSet } from './resource/fenced-set.js';
export type { Fence } from '../../core/fence.js';
