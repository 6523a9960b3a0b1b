import { MemoryBackend } from '../lib/backends/memory/memory-backend.js';
import { bareLocks } from '../test/support/bare-locks.js';
import { setTimeout as sleep } from 'node:timers/promises';
export { MemoryBackend, bareLocks, sleep };
export const proc = (backend: any, instance: string) => bareLocks({ backend, namespace: 'ns', instance });
/** the memory store seen by one process, through a network that a test controls */
export class Net {
  readonly name = 'memory';
  constructor(readonly inner: MemoryBackend, readonly before: (r: any) => Promise<void> | void = () => {}, readonly after: (r: any) => Promise<void> | void = () => {}) {}
  get clock() { return this.inner.clock; }
  async execute(r: any) { await this.before(r); const x = await this.inner.execute(r); await this.after(r); return x; }
  inspect(k: string) { return this.inner.inspect(k); }
  list(r: any) { return this.inner.list(r); }
  forceRelease(k: string, t: bigint) { return this.inner.forceRelease(k, t); }
  readTicks(k: string) { return this.inner.readTicks(k); }
  registerTicks(k: string) { return this.inner.registerTicks(k); }
  setPaused(k: string, p: boolean) { return this.inner.setPaused(k, p); }
  appendHistory(k: string, e: string) { return this.inner.appendHistory(k, e); }
  readHistory(k: string) { return this.inner.readHistory(k); }
  onReleased(l: any) { return this.inner.onReleased(l); }
  close() { return Promise.resolve(); }
}
export const show = (e: any) => `${e?.name}: ${String(e?.message).slice(0, 160)}`;
