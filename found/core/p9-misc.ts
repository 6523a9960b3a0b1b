import { MemoryBackend, proc, show, sleep } from './common.js';
const A = proc(new MemoryBackend(), 'A');
await A.withLock('k', undefined as any, () => 1).then((v) => console.log('withLock(k, undefined, work):', v), (e) => console.log('withLock(k, undefined, work):', show(e)));
await A.withLock(['k'], undefined as any, () => 1).then((v) => console.log('withLock([k], undefined, work):', v), (e) => console.log('withLock([k], undefined, work):', show(e)));
await A.acquire(['k', 'l'], null as any).catch((e) => console.log('acquire(list, null):', show(e)));
await A.acquire('k', null as any).catch((e) => console.log('acquire(k, null):', show(e)));
await A.tryAcquire(['k'], null as any).catch((e) => console.log('tryAcquire(list, null):', show(e)));
// views leak in the outer lock
await A.withLock('outer', {}, async (outer: any) => {
  const ended = AbortSignal.abort(new Error('x'));
  void ended;
});
process.exit();
