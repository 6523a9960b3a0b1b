import v8 from 'node:v8';
import { MemoryBackend, proc } from './common.js';
import { ReentrantLock } from '../lib/core/leases/lock-views.js';
const A = proc(new MemoryBackend(), 'A');
const count = () => (v8 as any).queryObjects(ReentrantLock, { format: 'count' });
await A.withLock('outer', { leaseMs: 600_000 }, async () => {
  for (let i = 0; i < 20_000; i++) { const c = new AbortController(); const p = A.tryAcquire(['outer', `x${i}`], { reentrant: true, signal: c.signal }); c.abort(new Error('x')); await p.catch(() => {}); }
  console.log('views kept by the outer lock after 20,000 aborted tryAcquire:', count());
});
console.log('after the outer lock:', count());
process.exit();
