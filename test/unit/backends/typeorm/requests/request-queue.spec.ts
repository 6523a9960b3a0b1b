import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from '@jest/globals';
import type { Connection } from '../../../../../lib/backends/typeorm/connections/connection.js';
import type { PendingRequest } from '../../../../../lib/backends/typeorm/requests/pending-batch.js';
import { RequestQueue } from '../../../../../lib/backends/typeorm/requests/request-queue.js';
import { Gate } from '../../../../support/gate.js';
import { until } from '../../../../support/until.js';

const LIMIT_MS = 30_000;
const link = { isUsable: true, openSession: () => ({}), destroy: () => undefined } as unknown as Connection;
const acquire = (key: string) => ({ key, holder: `h-${key}`, leaseMs: 1_000, instance: 'spec' });
const names = (errands: readonly PendingRequest[]) =>
  errands.map(({ kind: verb, request }) => `${verb} ${request.key}`);

/** One connection, over which each batch waits for its gate. */
function oneConnection(connect = () => Promise.resolve(link), mostLinks = 1) {
  const batches: { readonly left: string[]; readonly gate: Gate; answer(): void }[] = [];
  const gathering = new RequestQueue({
    maxConnections: mostLinks,
    connect,
    async execute(errands, _, settle) {
      const answer = (errand: PendingRequest) => {
        errand.batch.settle(errand, { kind: 'gone' });
        settle(errand);
      };
      const batch = { left: names(errands), gate: new Gate(), answer: () => answer(errands[0]!) };
      batches.push(batch);
      for (const errand of errands) errand.wasSent = true;
      await batch.gate.passed;
      for (const errand of errands) errand.batch.settle(errand, { kind: 'gone' });
    },
  });
  return { gathering, batches };
}

describe('requests that wait for a connection', () => {
  it('leave together once it is free; the first one leaves alone', async () => {
    const { gathering, batches } = oneConnection();
    const calls = [gathering.execute({ acquire: [acquire('a')] }, LIMIT_MS)];
    await until(() => batches.length === 1);
    calls.push(gathering.execute({ acquire: [acquire('b')] }, LIMIT_MS));
    calls.push(gathering.execute({ release: [acquire('c')], renew: [acquire('d')] }, LIMIT_MS));
    batches[0]!.gate.open();
    await until(() => batches.length === 2);
    batches[1]!.gate.open();
    await Promise.all(calls);
    expect(batches.map(({ left }) => left)).toEqual([['acquire a'], ['acquire b', 'release c', 'renew d']]);
  });

  it('do not overtake each other on one key', async () => {
    const { gathering, batches } = oneConnection();
    const calls = [
      gathering.execute({ acquire: [acquire('a')] }, LIMIT_MS),
      gathering.execute({ acquire: [acquire('k')] }, LIMIT_MS),
      gathering.execute({ release: [acquire('k')] }, LIMIT_MS),
      gathering.execute({ acquire: [acquire('k'), acquire('b')] }, LIMIT_MS),
    ];
    for (let index = 0; index < 2; index += 1) {
      await until(() => batches.length > index);
      batches[index]!.gate.open();
    }
    await Promise.all(calls);
    expect(batches.map(({ left }) => left)).toEqual([
      ['acquire a', 'acquire k', 'acquire b'],
      ['release k', 'acquire k'],
    ]);
  });

  it('were never sent if their time is over before their turn', async () => {
    const { gathering, batches } = oneConnection();
    const first = gathering.execute({ acquire: [acquire('a')] }, LIMIT_MS);
    await until(() => batches.length === 1);
    const late = await gathering.execute({ acquire: [acquire('b')] }, 20);
    expect(late.acquire).toMatchObject([{ kind: 'unknown', wasSent: false }]);
    batches[0]!.gate.open();
    await first;
    expect(batches).toHaveLength(1);
  });

  it('may have taken effect if their time is over under way', async () => {
    const { gathering, batches } = oneConnection();
    const { acquire: answers } = await gathering.execute({ acquire: [acquire('a')] }, 20);
    expect(answers[0]).toMatchObject({ kind: 'unknown' });
    expect(answers[0]).not.toHaveProperty('wasSent');
    batches[0]!.gate.open();
  });

  it('hear why there is no connection, and the next one tries again', async () => {
    let tries = 0;
    const { gathering, batches } = oneConnection(() =>
      tries++ === 0 ? Promise.reject(new Error('refused')) : Promise.resolve(link),
    );
    const refused = await gathering.execute({ acquire: [acquire('a')] }, LIMIT_MS);
    expect(refused.acquire).toMatchObject([
      { kind: 'unknown', wasSent: false, cause: { message: 'refused' } },
    ]);
    const again = gathering.execute({ acquire: [acquire('a')] }, LIMIT_MS);
    await until(() => batches.length === 1);
    batches[0]!.gate.open();
    await again;
  });

  it('leave once the last request for their key is answered, though others of its batch are not', async () => {
    const { gathering, batches } = oneConnection(undefined, 2);
    const first = gathering.execute({ renew: [acquire('k')], acquire: [acquire('stuck')] }, LIMIT_MS);
    await until(() => batches.length === 1);
    const second = gathering.execute({ release: [acquire('k'), acquire('stuck')] }, LIMIT_MS);
    batches[0]!.answer();
    await until(() => batches.length === 2);
    batches[1]!.gate.open();
    batches[0]!.gate.open();
    await until(() => batches.length === 3);
    batches[2]!.gate.open();
    await Promise.all([first, second]);
    expect(batches.map(({ left }) => left)).toEqual([
      ['renew k', 'acquire stuck'],
      ['release k'],
      ['release stuck'],
    ]);
  });

  it('take turns with visits', async () => {
    const { gathering, batches } = oneConnection();
    const order: string[] = [];
    const first = gathering.execute({ acquire: [acquire('a')] }, LIMIT_MS);
    await until(() => batches.length === 1);
    const visits = [1, 2, 3].map((visit) =>
      gathering.withSession(LIMIT_MS, async () => void order.push(`visit ${visit}`)),
    );
    const renewed = gathering.execute({ renew: [acquire('b')] }, LIMIT_MS).then(() => order.push('renewal'));
    batches[0]!.gate.open();
    await until(() => batches.length === 2);
    batches[1]!.gate.open();
    await Promise.all([first, renewed, ...visits]);
    expect(order).toEqual(['visit 1', 'renewal', 'visit 2', 'visit 3']);
  });
});

describe('where no connection can be had, requests', () => {
  const refusal = { kind: 'unknown', wasSent: false, cause: { message: 'refused' } };

  it('all hear so at once, also visits, and nothing more is opened', async () => {
    let tries = 0;
    const { gathering } = oneConnection(async () => {
      tries += 1;
      await turn();
      throw new Error('refused');
    }, 2);
    const visit = gathering.withSession(LIMIT_MS, async () => 'visited');
    const calls = ['a', 'b'].map((key) => gathering.execute({ acquire: [acquire(key)] }, LIMIT_MS));
    await expect(visit).rejects.toThrow('refused');
    for (const { acquire: answers } of await Promise.all(calls)) expect(answers).toMatchObject([refusal]);
    for (let turns = 0; turns < 20; turns += 1) await turn();
    expect(tries).toBe(2);
  });

  it('wait for one that stands, and no other is tried in a row', async () => {
    let tries = 0;
    const connect = () =>
      tries++ === 0 ? Promise.resolve(link) : Promise.reject(new Error('too many clients'));
    const { gathering, batches } = oneConnection(connect, 2);
    const first = gathering.execute({ acquire: [acquire('a')] }, LIMIT_MS);
    await until(() => batches.length === 1);
    const second = gathering.execute({ acquire: [acquire('b')] }, LIMIT_MS);
    for (let turns = 0; turns < 20; turns += 1) await turn();
    expect(tries).toBe(2);
    batches[0]!.gate.open();
    await until(() => batches.length === 2);
    batches[1]!.gate.open();
    await Promise.all([first, second]);
  });

  it('are refused after close, and nothing is opened for them', async () => {
    let tries = 0;
    const fleeting = { isUsable: true, openSession: () => ({}), destroy: () => undefined };
    const { gathering, batches } = oneConnection(() => {
      tries += 1;
      return Promise.resolve(fleeting as unknown as Connection);
    });
    const first = gathering.execute({ acquire: [acquire('a')] }, LIMIT_MS);
    await until(() => batches.length === 1);
    const second = gathering.execute({ acquire: [acquire('b')] }, LIMIT_MS);
    const closed = gathering.close();
    fleeting.isUsable = false;
    batches[0]!.gate.open();
    await Promise.all([first, closed]);
    expect((await second).acquire).toMatchObject([{ kind: 'unknown', wasSent: false }]);
    expect(tries).toBe(1);
  });
});
