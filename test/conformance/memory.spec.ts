import { memoryBackend } from '../../lib/backends/memory/memory-backend.js';
import { describeLaws } from './law-suite.js';

const store = memoryBackend();

describeLaws('memory', {
  open: () => store,
  forget: async () => store.forgetAll(),
});
