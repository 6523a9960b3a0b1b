export { RedisBackend, redisBackend } from './redis-backend.js';
export type { RedisSource } from './connection.js';
