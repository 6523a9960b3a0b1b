import type { Store } from '../../stores.js';
import { locksOn, task, tell } from './locks-of.js';

/** Closes the application with a holder and a waiter in it, and ends when nothing is left to do. */
const { store, namespace } = task() as { store: Store; namespace: string };
const { app, locks } = await locksOn(store, namespace);
let finish!: () => void;
const finished = new Promise<void>((resolve) => (finish = resolve));
let hold!: () => void;
const held = new Promise<void>((resolve) => (hold = resolve));
const holder = locks.withLock('key', async () => {
  hold();
  await finished;
  return 'finished';
});
await held;
const waiter = locks.acquire('key').catch((error: unknown) => (error as Error).name);
const closed = app.close();
tell({ waiter: await waiter });
finish();
tell({ holder: await holder });
await closed;
process.disconnect();
