import { setTimeout as sleep } from 'node:timers/promises';
import type { Nemesis } from './nemesis.js';

export const sessionsKilled: Nemesis = {
  name: 'sessions killed',
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ killSessions }) => killSessions !== undefined,
  strike: async ({ world }) => world.killSessions?.(),
};

/** What brings calls to those who wait. */
export const callsKilled: Nemesis = {
  name: 'sessions for calls killed',
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ killCalls }) => killCalls !== undefined,
  strike: async ({ world }) => world.killCalls?.(),
};

/** Whoever is back is sent away again. */
export const reconnectStorm: Nemesis = {
  name: 'reconnect storm',
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ killSessions }) => killSessions !== undefined,
  async strike({ world }, random) {
    for (let left = random.whole(5, 15); left > 0; left -= 1) {
      await world.killSessions?.();
      await sleep(random.between(20, 120));
    }
  },
};

export const poolExhausted: Nemesis = {
  name: 'connections exhausted',
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ crowd }) => crowd !== undefined,
  strike: async ({ world }, random) => world.crowd?.(random.between(300, 2_500)),
};

export const scriptsFlushed: Nemesis = {
  name: 'SCRIPT FLUSH',
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ flushScripts }) => flushScripts !== undefined,
  async strike({ world }, random) {
    for (let left = random.whole(1, 20); left > 0; left -= 1) {
      await world.flushScripts?.();
      await sleep(random.between(5, 50));
    }
  },
};
