import { expect, it } from 'vitest';
import type { ServerStatus } from '../../../lib/core/store-notices.js';
import { systemClock } from '../../../lib/core/clock.js';
import { Events } from '../../../lib/core/events.js';
import { Locks } from '../../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../../lib/core/options.js';
import { createLogListeners } from '../../../lib/module/event-log.js';
import { ScriptedBackend } from '../scripted-backend.js';

it('the failure and the recovery of a server are logged', async () => {
  const listeners = new Set<(news: ServerStatus) => void>();
  class OfServers extends ScriptedBackend {
    onServerStatus(listener: (news: ServerStatus) => void) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    }
  }
  const lines: string[] = [];
  const log = (level: string) => (text: unknown) => void lines.push(`${level}: ${String(text)}`);
  const logger = { log: log('log'), warn: log('warn'), error: log('error') };
  const source = { namespace: 'lock', instance: 'ours' };
  const events = new Events(
    { ...source, backend: 'memory', module: 'default' },
    createLogListeners(logger, systemClock),
  );
  const locks = new Locks({
    ...source,
    ...{ backend: new OfServers(), defaults: BUILT_IN_LOCK_OPTIONS, events },
  });
  const tell = (news: ServerStatus) => listeners.forEach((listener) => listener(news));
  const about = { server: '10.0.0.2:6379', needed: 2, servers: 3 };
  tell({ ...about, voting: 2, fault: 'did not answer in time' });
  tell({ ...about, voting: 3 });
  expect(lines).toEqual([
    'warn: Redis server 10.0.0.2:6379 did not answer in time. 2 of 3 servers can vote, and a lock needs 2 votes.',
    'log: Redis server 10.0.0.2:6379 is back. 3 of 3 servers can vote, and a lock needs 2 votes.',
  ]);
  await locks.close();
  expect(listeners.size).toBe(0);
});
