import { Test, type TestingModule } from '@nestjs/testing';
import { DistributedLockModule, LockService } from '../../../lib/index.js';
import { type Store, backendOn } from '../../support/stores.js';

/** What a worker is told on its command line. */
export const task = (): unknown => JSON.parse(process.argv[2] ?? '{}');

export async function openLocks(
  store: Store,
  namespace: string,
  defaults: { readonly leaseMs?: number } = {},
): Promise<{ app: TestingModule; locks: LockService }> {
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: backendOn(store), namespace, defaults })],
  }).compile();
  await app.init();
  return { app, locks: app.get(LockService) };
}

export function sendToParent(message: Record<string, unknown>): void {
  process.send?.(message);
}
