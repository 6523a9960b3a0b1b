export { type DistributedLockEntityOptions, distributedLockEntity } from './entity.js';
export { CreateDistributedLock1700000000000, distributedLockMigration } from './migration.js';
export type { TypeormBackendOptions } from './options.js';
export { TypeormBackend, typeormBackend } from './typeorm-backend.js';
export type { SupportedType } from './dialects.js';
