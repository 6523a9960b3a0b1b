export { type RedisBackendOptions, RedisBackend, redisBackend } from './redis-backend.js';
export type { ReplicaOptions } from './replicas.js';
export type { RedisSource } from './connection.js';
