import { expect, it } from 'vitest';
import type { Statements } from '../../../../../lib/backends/typeorm/dialects/dialect.js';
import { registerTicks } from '../../../../../lib/backends/typeorm/requests/tick-claims.js';
import type { Session } from '../../../../../lib/backends/typeorm/connections/session.js';

it('a registration whose row is removed before it is written begins again', async () => {
  let rows = 0;
  let [removals, tick] = [2, 0];
  const statements = {
    readRow: () => Promise.resolve({ nowUs: 5_000_000 }),
    insertMissing: () => Promise.resolve(void (rows = 1)),
    setTick(_session: Session, { tickMs }: { tickMs: number }) {
      if (removals-- > 0) rows = 0;
      if (rows > 0) tick = tickMs;
      return Promise.resolve(rows > 0);
    },
  } as Partial<Statements> as Statements;
  const state = await registerTicks(statements, { timeout: { leftMs: 1_000 } } as Session, 'job');
  expect(state).toMatchObject({ nowMs: 5_000, claimed: undefined });
  expect(tick).toBe(5_000);
});
