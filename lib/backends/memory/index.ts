export { MemoryBackend, memoryBackend, type MemoryBackendOptions } from './memory-backend.js';
