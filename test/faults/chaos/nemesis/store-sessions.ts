import { setTimeout as sleep } from 'node:timers/promises';
import type { Nemesis } from './nemesis.js';

export const sessionsKilled: Nemesis = {
  name: 'sessions killed',
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ killSessions }) => killSessions !== undefined,
  inject: async ({ store }) => store.killSessions?.(),
};

/** What brings calls to those who wait. */
export const notificationSessionsKilled: Nemesis = {
  name: 'sessions for calls killed',
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ killNotificationSessions }) => killNotificationSessions !== undefined,
  inject: async ({ store }) => store.killNotificationSessions?.(),
};

/** Whoever is back is sent away again. */
export const reconnectStorm: Nemesis = {
  name: 'reconnect storm',
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ killSessions }) => killSessions !== undefined,
  async inject({ store }, random) {
    for (let left = random.whole(5, 15); left > 0; left -= 1) {
      await store.killSessions?.();
      await sleep(random.between(20, 120));
    }
  },
};

export const poolExhausted: Nemesis = {
  name: 'connections exhausted',
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ exhaustConnections }) => exhaustConnections !== undefined,
  inject: async ({ store }, random) => store.exhaustConnections?.(random.between(300, 2_500)),
};

export const scriptsFlushed: Nemesis = {
  name: 'SCRIPT FLUSH',
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ flushScripts }) => flushScripts !== undefined,
  async inject({ store }, random) {
    for (let left = random.whole(1, 20); left > 0; left -= 1) {
      await store.flushScripts?.();
      await sleep(random.between(5, 50));
    }
  },
};
