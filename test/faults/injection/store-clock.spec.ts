import { describe, expect, it } from 'vitest';
import { createConnection } from 'mysql2/promise';
import { startMariadb } from '../../services/mariadb.js';
import { StoreClock } from './store-clock.js';

const HOUR_MS = 3_600_000;
const SLEPT_MS = 200;

describe('StoreClock', () => {
  // MariaDB takes waits that end at once for long ones, and aborts.
  it('sets the clock of a server back, which waits no less for it', async () => {
    const clock = await StoreClock.open();
    const server = await startMariadb({ env: clock.env });
    try {
      const client = await createConnection(server.url.replace('mariadb:', 'mysql:'));
      const ask = async (what: string) =>
        ((await client.query(`SELECT ${what} AS answer`)) as unknown as [[{ answer: string }]])[0][0].answer;
      const beforeS = Number(await ask('UNIX_TIMESTAMP()'));
      clock.step(-HOUR_MS);
      expect(Number(await ask('UNIX_TIMESTAMP()'))).toBeLessThan(beforeS);

      const beganAtMs = performance.now();
      await ask(`SLEEP(${SLEPT_MS / 1_000})`);
      expect(performance.now() - beganAtMs).toBeGreaterThanOrEqual(SLEPT_MS);
      await client.end();
    } finally {
      await server.stop();
      clock.close();
    }
  });
});
