import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { DistributedLockModule, LeaderElection, type LeaderTerm, OnElected } from '../../../lib/index.js';
import { type Store, backendOn } from '../../support/stores.js';
import { task, sendToParent } from './worker-support.js';

/** Stands in one election and leads until told otherwise; told to `look`, says what it sees in its first line. */
const { store, namespace, leaseMs } = task() as { store: Store; namespace: string; leaseMs: number };

@Injectable()
class Boss {
  @OnElected('boss')
  async lead({ number, signal }: LeaderTerm): Promise<void> {
    const ended = new Promise((resolve) => signal.addEventListener('abort', resolve));
    sendToParent({ term: String(number) });
    await ended;
  }
}

const app = await Test.createTestingModule({
  imports: [DistributedLockModule.forRoot({ backend: backendOn(store), namespace, defaults: { leaseMs } })],
  providers: [Boss],
}).compile();
const candidate = app.get(LeaderElection).join('boss', { leaseMs });
await app.init();
process.on('message', (wanted) => {
  if (wanted === 'close') void app.close().then(() => process.disconnect());
  if (wanted === 'resign') void candidate.resign();
  if (wanted === 'look') sendToParent({ isLeader: candidate.isLeader() });
});
sendToParent({ isReady: true });
