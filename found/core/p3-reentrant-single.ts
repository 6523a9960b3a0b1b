import { MemoryBackend, proc, show } from './common.js';
import { inspect } from 'node:util';
const A = proc(new MemoryBackend(), 'A');
for (const keys of [['a', 'b'], ['a'], ['a', 'a']]) {
  await A.withLock(keys, {}, async () =>
    A.withLock('a', { reentrant: true }, async (lock) => {
      try { console.log(JSON.stringify(keys), 'inner token', lock.fencingToken); } catch (e) { console.log(JSON.stringify(keys), 'inner token throws', show(e)); }
      try { console.log('  log:', inspect(lock), JSON.stringify(lock)); } catch (e) { console.log('  log of the lock throws', show(e)); }
    }));
}
process.exit();
