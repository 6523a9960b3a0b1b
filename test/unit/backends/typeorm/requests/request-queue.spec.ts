import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from '@jest/globals';
import type { Connection } from '../../../../../lib/backends/typeorm/connections/connection.js';
import type { PendingRequest } from '../../../../../lib/backends/typeorm/requests/pending-batch.js';
import { RequestQueue } from '../../../../../lib/backends/typeorm/requests/request-queue.js';
import { Gate } from '../../../../support/gate.js';
import { until } from '../../../../support/until.js';

const TIMEOUT_MS = 30_000;
const connection = {
  isUsable: true,
  openSession: () => ({}),
  destroy: () => undefined,
} as unknown as Connection;
const acquire = (key: string) => ({ key, holder: `h-${key}`, leaseMs: 1_000, instance: 'spec' });
const names = (pendingRequests: readonly PendingRequest[]) =>
  pendingRequests.map(({ kind, request }) => `${kind} ${request.key}`);

/** One connection; each batch on it waits for its gate. */
function oneConnection(connect = () => Promise.resolve(connection), maxConnections = 1) {
  const batches: { readonly sent: string[]; readonly gate: Gate; endFirst(): void }[] = [];
  const requestQueue = new RequestQueue({
    maxConnections,
    connect,
    async execute(pendingRequests, _, onStatementEnd) {
      const end = (pending: PendingRequest) => {
        pending.batch.settle(pending, { kind: 'gone' });
        onStatementEnd(pending);
      };
      const batch = {
        sent: names(pendingRequests),
        gate: new Gate(),
        endFirst: () => end(pendingRequests[0]!),
      };
      batches.push(batch);
      for (const pending of pendingRequests) pending.wasSent = true;
      await batch.gate.passed;
      for (const pending of pendingRequests) pending.batch.settle(pending, { kind: 'gone' });
    },
  });
  return { requestQueue, batches };
}

describe('requests that wait for a connection', () => {
  it('are sent together once one is free; the first is sent alone', async () => {
    const { requestQueue, batches } = oneConnection();
    const calls = [requestQueue.execute({ acquire: [acquire('a')] }, TIMEOUT_MS)];
    await until(() => batches.length === 1);
    calls.push(requestQueue.execute({ acquire: [acquire('b')] }, TIMEOUT_MS));
    calls.push(requestQueue.execute({ release: [acquire('c')], renew: [acquire('d')] }, TIMEOUT_MS));
    batches[0]!.gate.open();
    await until(() => batches.length === 2);
    batches[1]!.gate.open();
    await Promise.all(calls);
    expect(batches.map(({ sent }) => sent)).toEqual([['acquire a'], ['acquire b', 'release c', 'renew d']]);
  });

  it('do not overtake each other on one key', async () => {
    const { requestQueue, batches } = oneConnection();
    const calls = [
      requestQueue.execute({ acquire: [acquire('a')] }, TIMEOUT_MS),
      requestQueue.execute({ acquire: [acquire('k')] }, TIMEOUT_MS),
      requestQueue.execute({ release: [acquire('k')] }, TIMEOUT_MS),
      requestQueue.execute({ acquire: [acquire('k'), acquire('b')] }, TIMEOUT_MS),
    ];
    for (let index = 0; index < 2; index += 1) {
      await until(() => batches.length > index);
      batches[index]!.gate.open();
    }
    await Promise.all(calls);
    expect(batches.map(({ sent }) => sent)).toEqual([
      ['acquire a', 'acquire k', 'acquire b'],
      ['release k', 'acquire k'],
    ]);
  });

  it('are never sent if their timeout ends before a connection is free', async () => {
    const { requestQueue, batches } = oneConnection();
    const first = requestQueue.execute({ acquire: [acquire('a')] }, TIMEOUT_MS);
    await until(() => batches.length === 1);
    const late = await requestQueue.execute({ acquire: [acquire('b')] }, 20);
    expect(late.acquire).toMatchObject([{ kind: 'unknown', wasSent: false }]);
    batches[0]!.gate.open();
    await first;
    expect(batches).toHaveLength(1);
  });

  it('may have taken effect if their timeout ends after they were sent', async () => {
    const { requestQueue, batches } = oneConnection();
    const { acquire: results } = await requestQueue.execute({ acquire: [acquire('a')] }, 20);
    expect(results[0]).toMatchObject({ kind: 'unknown' });
    expect(results[0]).not.toHaveProperty('wasSent');
    batches[0]!.gate.open();
  });

  it('hear why there is no connection, and the next one attempts again', async () => {
    let attempts = 0;
    const { requestQueue, batches } = oneConnection(() =>
      attempts++ === 0 ? Promise.reject(new Error('refused')) : Promise.resolve(connection),
    );
    const refused = await requestQueue.execute({ acquire: [acquire('a')] }, TIMEOUT_MS);
    expect(refused.acquire).toMatchObject([
      { kind: 'unknown', wasSent: false, cause: { message: 'refused' } },
    ]);
    const again = requestQueue.execute({ acquire: [acquire('a')] }, TIMEOUT_MS);
    await until(() => batches.length === 1);
    batches[0]!.gate.open();
    await again;
  });

  it('are sent once the last request for their key has ended, even if others of its batch have not', async () => {
    const { requestQueue, batches } = oneConnection(undefined, 2);
    const first = requestQueue.execute({ renew: [acquire('k')], acquire: [acquire('stuck')] }, TIMEOUT_MS);
    await until(() => batches.length === 1);
    const second = requestQueue.execute({ release: [acquire('k'), acquire('stuck')] }, TIMEOUT_MS);
    batches[0]!.endFirst();
    await until(() => batches.length === 2);
    batches[1]!.gate.open();
    batches[0]!.gate.open();
    await until(() => batches.length === 3);
    batches[2]!.gate.open();
    await Promise.all([first, second]);
    expect(batches.map(({ sent }) => sent)).toEqual([
      ['renew k', 'acquire stuck'],
      ['release k'],
      ['release stuck'],
    ]);
  });

  it('alternate with sessions', async () => {
    const { requestQueue, batches } = oneConnection();
    const order: string[] = [];
    const first = requestQueue.execute({ acquire: [acquire('a')] }, TIMEOUT_MS);
    await until(() => batches.length === 1);
    const sessions = [1, 2, 3].map((session) =>
      requestQueue.withSession(TIMEOUT_MS, async () => void order.push(`session ${session}`)),
    );
    const renewed = requestQueue
      .execute({ renew: [acquire('b')] }, TIMEOUT_MS)
      .then(() => order.push('renewal'));
    batches[0]!.gate.open();
    await until(() => batches.length === 2);
    batches[1]!.gate.open();
    await Promise.all([first, renewed, ...sessions]);
    expect(order).toEqual(['session 1', 'renewal', 'session 2', 'session 3']);
  });
});

describe('requests without a connection', () => {
  const refusal = { kind: 'unknown', wasSent: false, cause: { message: 'refused' } };

  it('all fail at once, sessions too, and no other connection is opened', async () => {
    let attempts = 0;
    const { requestQueue } = oneConnection(async () => {
      attempts += 1;
      await turn();
      throw new Error('refused');
    }, 2);
    const session = requestQueue.withSession(TIMEOUT_MS, async () => 'done');
    const calls = ['a', 'b'].map((key) => requestQueue.execute({ acquire: [acquire(key)] }, TIMEOUT_MS));
    await expect(session).rejects.toThrow('refused');
    for (const { acquire: results } of await Promise.all(calls)) expect(results).toMatchObject([refusal]);
    for (let turns = 0; turns < 20; turns += 1) await turn();
    expect(attempts).toBe(2);
  });

  it('wait for an open connection, and opening another is not tried again at once', async () => {
    let attempts = 0;
    const connect = () =>
      attempts++ === 0 ? Promise.resolve(connection) : Promise.reject(new Error('too many clients'));
    const { requestQueue, batches } = oneConnection(connect, 2);
    const first = requestQueue.execute({ acquire: [acquire('a')] }, TIMEOUT_MS);
    await until(() => batches.length === 1);
    const second = requestQueue.execute({ acquire: [acquire('b')] }, TIMEOUT_MS);
    for (let turns = 0; turns < 20; turns += 1) await turn();
    expect(attempts).toBe(2);
    batches[0]!.gate.open();
    await until(() => batches.length === 2);
    batches[1]!.gate.open();
    await Promise.all([first, second]);
  });

  it('fail after close, and no connection is opened for them', async () => {
    let attempts = 0;
    const shortLived = { isUsable: true, openSession: () => ({}), destroy: () => undefined };
    const { requestQueue, batches } = oneConnection(() => {
      attempts += 1;
      return Promise.resolve(shortLived as unknown as Connection);
    });
    const first = requestQueue.execute({ acquire: [acquire('a')] }, TIMEOUT_MS);
    await until(() => batches.length === 1);
    const second = requestQueue.execute({ acquire: [acquire('b')] }, TIMEOUT_MS);
    const closed = requestQueue.close();
    shortLived.isUsable = false;
    batches[0]!.gate.open();
    await Promise.all([first, closed]);
    expect((await second).acquire).toMatchObject([{ kind: 'unknown', wasSent: false }]);
    expect(attempts).toBe(1);
  });
});
