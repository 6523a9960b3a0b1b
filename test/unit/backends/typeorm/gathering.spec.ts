import { describe, expect, it } from '@jest/globals';
import type { Errand } from '../../../../lib/backends/typeorm/call.js';
import { Gathering } from '../../../../lib/backends/typeorm/gathering.js';
import type { Link } from '../../../../lib/backends/typeorm/link.js';
import { Gate } from '../../../gate.js';
import { until } from '../../../until.js';

const LIMIT_MS = 30_000;
const link = { isUsable: true, visit: () => ({}), giveUp: () => undefined } as unknown as Link;
const acquire = (key: string) => ({ key, holder: `h-${key}`, leaseMs: 1_000, instance: 'spec' });
const names = (errands: readonly Errand[]) => errands.map(({ verb, request }) => `${verb} ${request.key}`);

/** One connection, over which each batch waits for its gate. */
function oneConnection(connect = () => Promise.resolve(link)) {
  const batches: { readonly left: string[]; readonly gate: Gate }[] = [];
  const gathering = new Gathering({
    mostLinks: 1,
    connect,
    async carry(errands) {
      const batch = { left: names(errands), gate: new Gate() };
      batches.push(batch);
      for (const errand of errands) errand.wasSent = true;
      await batch.gate.passed;
      for (const errand of errands) errand.call.tell(errand, { kind: 'gone' });
    },
  });
  return { gathering, batches };
}

describe('requests that wait for a connection', () => {
  it('leave together once it is free; the first one leaves alone', async () => {
    const { gathering, batches } = oneConnection();
    const calls = [gathering.exchange({ acquire: [acquire('a')] }, LIMIT_MS)];
    await until(() => batches.length === 1);
    calls.push(gathering.exchange({ acquire: [acquire('b')] }, LIMIT_MS));
    calls.push(gathering.exchange({ release: [acquire('c')], renew: [acquire('d')] }, LIMIT_MS));
    batches[0]!.gate.open();
    await until(() => batches.length === 2);
    batches[1]!.gate.open();
    await Promise.all(calls);
    expect(batches.map(({ left }) => left)).toEqual([['acquire a'], ['acquire b', 'release c', 'renew d']]);
  });

  it('do not overtake each other on one key', async () => {
    const { gathering, batches } = oneConnection();
    const calls = [
      gathering.exchange({ acquire: [acquire('a')] }, LIMIT_MS),
      gathering.exchange({ acquire: [acquire('k')] }, LIMIT_MS),
      gathering.exchange({ release: [acquire('k')] }, LIMIT_MS),
      gathering.exchange({ acquire: [acquire('k'), acquire('b')] }, LIMIT_MS),
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
    const first = gathering.exchange({ acquire: [acquire('a')] }, LIMIT_MS);
    await until(() => batches.length === 1);
    const late = await gathering.exchange({ acquire: [acquire('b')] }, 20);
    expect(late.acquire).toMatchObject([{ kind: 'unknown', wasSent: false }]);
    batches[0]!.gate.open();
    await first;
    expect(batches).toHaveLength(1);
  });

  it('may have taken effect if their time is over under way', async () => {
    const { gathering, batches } = oneConnection();
    const { acquire: answers } = await gathering.exchange({ acquire: [acquire('a')] }, 20);
    expect(answers[0]).toMatchObject({ kind: 'unknown' });
    expect(answers[0]).not.toHaveProperty('wasSent');
    batches[0]!.gate.open();
  });

  it('hear why there is no connection, and the next one tries again', async () => {
    let tries = 0;
    const { gathering, batches } = oneConnection(() =>
      tries++ === 0 ? Promise.reject(new Error('refused')) : Promise.resolve(link),
    );
    const refused = await gathering.exchange({ acquire: [acquire('a')] }, LIMIT_MS);
    expect(refused.acquire).toMatchObject([
      { kind: 'unknown', wasSent: false, cause: { message: 'refused' } },
    ]);
    const again = gathering.exchange({ acquire: [acquire('a')] }, LIMIT_MS);
    await until(() => batches.length === 1);
    batches[0]!.gate.open();
    await again;
  });
});
