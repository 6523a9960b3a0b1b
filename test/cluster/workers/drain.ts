import { Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { memoryBackend } from '../../../lib/backends/memory/index.js';
import { DistributedLockModule, LockService } from '../../../lib/index.js';
import { sendToParent } from './worker-support.js';

/** Closes while work waits for nothing but its signal, in a process that nothing else keeps alive. */
@Injectable()
class Other implements OnApplicationShutdown {
  onApplicationShutdown(): void {
    sendToParent({ other: 'shut down' });
  }
}

const app = await Test.createTestingModule({
  imports: [
    DistributedLockModule.forRoot({
      backend: memoryBackend(),
      shutdown: { drainMs: 100, abortGraceMs: 5_000 },
    }),
  ],
  providers: [Other],
}).compile();
await app.init();
process.channel?.unref();
const work = app.get(LockService).withLock('key', ({ signal }) => {
  return new Promise<string>((resolve) => signal.addEventListener('abort', () => resolve('told')));
});
const closed = app.close();
sendToParent({ work: await work });
await closed;
