import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { ConnectionPool } from '../../../../../lib/backends/typeorm/connections/connection-pool.js';
import type { Connection } from '../../../../../lib/backends/typeorm/connections/connection.js';
import { Timeout } from '../../../../../lib/backends/typeorm/connections/session.js';
import { Gate } from '../../../../support/gate.js';
import { until } from '../../../../support/until.js';

const TIMEOUT_MS = 30_000;

const newConnection = () =>
  ({ isUsable: true, openSession: () => ({}), destroy: () => undefined }) as unknown as Connection;

/** A pool, and what uses its connections now and has used them, in order. */
function poolOf(connect: () => Promise<Connection> = async () => newConnection(), maxSize = 1) {
  const pool = new ConnectionPool({ maxSize, connect });
  const started: string[] = [];
  const gates = new Map<string, Gate>();
  return {
    pool,
    started,
    /** Uses a connection until {@link end} is called with this name. */
    use(name: string, timeoutMs = TIMEOUT_MS, use: 'batch' | 'clean-up' | 'other' = 'batch') {
      const gate = new Gate();
      gates.set(name, gate);
      return pool.use(use, new Timeout(timeoutMs), async () => {
        started.push(name);
        await gate.passed;
        return name;
      });
    },
    end: (name: string) => gates.get(name)!.open(),
  };
}

const someTurns = async () => {
  for (let turns = 0; turns < 20; turns += 1) await turn();
};

describe('a use of a connection', () => {
  it('begins at once if one is free', async () => {
    const { use, end, started } = poolOf();
    const first = use('first');
    await until(() => started.length === 1);
    end('first');
    await first;
    const second = use('second');
    expect(started).toEqual(['first', 'second']);
    end('second');
    await second;
  });

  it('is rejected if its timeout ends before a connection is free, and never begins', async () => {
    const { use, end, started } = poolOf();
    const first = use('first');
    await until(() => started.length === 1);
    await expect(use('late', 20)).rejects.toThrow('no answer from the store within 20 ms');
    end('first');
    await first;
    await someTurns();
    expect(started).toEqual(['first']);
  });

  it('is rejected if none can be opened, and the next one attempts again', async () => {
    let attempts = 0;
    const { use, end, started } = poolOf(() =>
      attempts++ === 0 ? Promise.reject(new Error('refused')) : Promise.resolve(newConnection()),
    );
    await expect(use('first')).rejects.toThrow('refused');
    const second = use('second');
    await until(() => started.length === 1);
    end('second');
    expect(await second).toBe('second');
  });

  it('opens no connection if its time was over before the event loop ran', async () => {
    let attempts = 0;
    const { use } = poolOf(async () => {
      attempts += 1;
      return newConnection();
    });
    await expect(use('late', 0)).rejects.toThrow('no answer from the store');
    expect(attempts).toBe(0);
  });

  it('for a batch alternates with other uses', async () => {
    const { use, end, started } = poolOf();
    const names = ['first', 'one', 'two', 'three', 'batch'];
    const uses = [use('first')];
    await until(() => started.length === 1);
    uses.push(...['one', 'two', 'three'].map((name) => use(name, TIMEOUT_MS, 'other')), use('batch'));
    for (const name of names) end(name);
    await Promise.all(uses);
    expect(started).toEqual(['first', 'one', 'batch', 'two', 'three']);
  });
});

describe('without a connection', () => {
  it('all uses are rejected at once, and no other connection is opened', async () => {
    let attempts = 0;
    const { use } = poolOf(async () => {
      attempts += 1;
      await turn();
      throw new Error('refused');
    }, 2);
    const uses = [use('session', TIMEOUT_MS, 'other'), use('one'), use('two')];
    for (const result of await Promise.allSettled(uses)) expect(result).toMatchObject({ status: 'rejected' });
    await someTurns();
    expect(attempts).toBe(2);
  });

  it('beside an open one, uses wait for that one, and opening another is not tried again at once', async () => {
    let attempts = 0;
    const { use, end, started } = poolOf(
      () =>
        attempts++ === 0 ? Promise.resolve(newConnection()) : Promise.reject(new Error('too many clients')),
      2,
    );
    const first = use('first');
    await until(() => started.length === 1);
    const second = use('second');
    await someTurns();
    expect(attempts).toBe(2);
    end('first');
    await until(() => started.length === 2);
    end('second');
    await Promise.all([first, second]);
  });
});

describe('close', () => {
  it('waits for uses that have begun and that wait', async () => {
    const { pool, use, end, started } = poolOf();
    const uses = [use('first'), use('second')];
    await until(() => started.length === 1);
    let isClosed = false;
    const closed = pool.close().then(() => (isClosed = true));
    end('first');
    await until(() => started.length === 2);
    await someTurns();
    expect(isClosed).toBe(false);
    end('second');
    await Promise.all([...uses, closed]);
  });

  it('does not wait for a clean-up', async () => {
    const { pool, use, end, started } = poolOf();
    const cleanUp = use('clean-up', TIMEOUT_MS, 'clean-up');
    await until(() => started.length === 1);
    await pool.close();
    end('clean-up');
    await cleanUp;
  });

  it('rejects uses that wait once no connection is left, and opens none for them', async () => {
    let attempts = 0;
    const connection = newConnection();
    const { pool, use, end, started } = poolOf(async () => {
      attempts += 1;
      return connection;
    });
    const uses = [use('first'), use('second')];
    await until(() => started.length === 1);
    const closed = pool.close();
    Object.assign(connection, { isUsable: false });
    end('first');
    await Promise.allSettled([...uses, closed]);
    await expect(uses[1]).rejects.toThrow('the connections to the database were closed');
    expect(attempts).toBe(1);
  });
});
