import { askRedis } from './ask-redis.js';
import { ensureProgram } from './install.js';
import type { Service, ServiceOptions } from './service.js';
import { startServer } from './start-server.js';

/** Starts a private Redis, which forgets everything when it ends, unless `args` tell it to save. */
export async function startRedis(options: ServiceOptions = {}): Promise<Service> {
  const file = await ensureProgram('redis-server');
  const forgetful = ['--save', '', '--appendonly', 'no'];
  return startServer(
    {
      name: 'redis',
      file,
      stopSignal: 'SIGTERM',
      url: (port) => `redis://127.0.0.1:${port}`,
      prepare: async () => undefined,
      args: ({ dataDir, port }) => [
        '--bind',
        '127.0.0.1',
        '--port',
        `${port}`,
        '--dir',
        dataDir,
        ...forgetful,
      ],
      ask: ping,
    },
    options,
  );
}

/** Also by a server whose other commands are not to be used yet: a Sentinel, a node without slots. */
export async function ping(url: string): Promise<void> {
  await askRedis(url, (admin) => admin.ping());
}
