import { memoryBackend } from '../../lib/backends/memory/memory-backend.js';
import { describeLaws } from './law-suite.js';

const store = memoryBackend();

const bench = { open: () => store, forget: async () => store.forgetAll() };
// One law after the other, since this bench forgets the keys of all laws.
describeLaws('memory', bench, { lanes: 1 });
