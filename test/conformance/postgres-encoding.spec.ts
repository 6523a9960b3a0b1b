import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { bareLocks } from '../support/bare-locks.js';
import { serviceUrl } from '../support/environment.js';

const administrator = new DataSource({ type: 'postgres', url: serviceUrl('TEST_POSTGRES_URL') });
const names: string[] = [];
afterAll(async () => {
  for (const name of names) await administrator.query(`DROP DATABASE ${name} WITH (FORCE)`);
  await administrator.destroy();
});

async function createDatabase(encoding: string): Promise<string> {
  if (!administrator.isInitialized) await administrator.initialize();
  const name = `spec_${randomUUID().replaceAll('-', '')}`;
  await administrator.query(
    `CREATE DATABASE ${name} ENCODING '${encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`,
  );
  names.push(name);
  const url = new URL(serviceUrl('TEST_POSTGRES_URL'));
  url.pathname = `/${name}`;
  return url.href;
}

describe.each(['LATIN1', 'WIN1252', 'EUC_JP', 'SQL_ASCII'])('a database in %s', (encoding) => {
  it('lists the locks of a prefix', async () => {
    const url = await createDatabase(encoding);
    const backend = typeormBackend({ dataSource: { type: 'postgres', url } });
    const locks = bareLocks({ backend, namespace: 'shop' });
    try {
      for (const key of ['order:1', 'order:2', 'ordes']) await locks.acquire(key);
      const { locks: found } = await locks.list({ prefix: 'order' });
      expect(found.map(({ key }) => key)).toEqual(['order:1', 'order:2']);
      expect((await locks.list({})).locks).toHaveLength(3);
    } finally {
      await locks.close();
    }
  });
});

it('reads a key although another one cannot be written in LATIN1', async () => {
  const url = await createDatabase('LATIN1');
  const locks = bareLocks({
    backend: typeormBackend({ dataSource: { type: 'postgres', url } }),
    namespace: 'shop',
  });
  try {
    await locks.acquire('order:1');
    const [refused, found] = await Promise.allSettled([locks.inspect('😀'), locks.inspect('order:1')]);
    expect([refused.status, found.status]).toEqual(['rejected', 'fulfilled']);
    expect(found).toHaveProperty('value.key', 'order:1');
  } finally {
    await locks.close();
  }
});
