export { RedisBackend, redisBackend } from './redis-backend.js';
export type { RedisSource } from './connection.js';
export { RedlockBackend, redlockBackend } from './quorum/redlock-backend.js';
export type { RedlockOptions } from './quorum/redlock-options.js';
