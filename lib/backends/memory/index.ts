export { MemoryBackend, memoryBackend } from './memory-backend.js';
export type { MemoryBackendOptions } from './memory-options.js';
