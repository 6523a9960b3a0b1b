import { memoryBackend } from '../../lib/backends/memory/memory-backend.js';
import { keepsTheLaws } from './keeps-the-laws.js';

const store = memoryBackend();

keepsTheLaws('memory', {
  open: () => store,
  forget: async () => store.forgetAll(),
});
