import { randomBytes, randomUUID } from 'node:crypto';
import { afterEach, expect, it } from 'vitest';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { addressOf } from '../../lib/backends/typeorm/connections/connection-options.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { serviceUrl } from '../support/environment.js';
import { createPostgresDatabase, urlOf } from '../support/postgres-database.js';
import { until } from '../support/until.js';

/** What happens if the address of the database changes while a process uses it. */

const LIMIT_MS = 30_000;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

interface Given {
  readonly dataSource: DataSourceOptions;
  /** Changes the options of the data source to another place. */
  move(): void;
  /** Ends the connections of the backend, as a fault of the network does. */
  disconnect(): Promise<unknown>;
}

async function onPostgres(
  create: (one: string, other: string) => Pick<Given, 'dataSource' | 'move'>,
): Promise<Given> {
  const [one, other] = [await createPostgresDatabase(), await createPostgresDatabase()];
  ends.push(one.drop, other.drop);
  const kill = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1';
  return { ...create(one.url, other.url), disconnect: () => one.query(kill, [one.name]) };
}

async function withConnectionString(): Promise<Given> {
  return await onPostgres((one, other) => {
    const extra = { connectionString: one };
    const move = () => void (extra.connectionString = other);
    return { dataSource: { type: 'postgres', extra }, move };
  });
}

async function withSearchPath(): Promise<Given> {
  let url = '';
  const extra = { options: '-c search_path=one' };
  const given = await onPostgres((one) => {
    url = one;
    const move = () => void (extra.options = '-c search_path=other');
    return { dataSource: { type: 'postgres', url, extra }, move };
  });
  const admin = await new DataSource({ type: 'postgres', url }).initialize();
  for (const schema of ['one', 'other']) await admin.query(`CREATE SCHEMA ${schema}`);
  await admin.destroy();
  return given;
}

async function withUri(): Promise<Given> {
  const url = serviceUrl('TEST_MARIADB_URL');
  const admin = await new DataSource({ type: 'mariadb', url }).initialize();
  const names = ['one', 'other'].map((name) => `${name}_${randomBytes(6).toString('hex')}`);
  const [one = '', other = ''] = names;
  for (const name of names) await admin.query(`CREATE DATABASE ${name}`);
  ends.push(async () => {
    for (const name of names) await admin.query(`DROP DATABASE ${name}`);
    await admin.destroy();
  });
  const extra = { uri: urlOf(url, one) };
  const sessions = 'SELECT id FROM information_schema.processlist WHERE db = ?';
  return {
    dataSource: { type: 'mariadb', extra },
    move: () => void (extra.uri = urlOf(url, other)),
    async disconnect() {
      for (const { id } of await admin.query<{ id: string }[]>(sessions, [one]))
        await admin.query(`KILL ${id}`);
    },
  };
}

async function acquire(backend: LockBackend, key: string) {
  const request = { key, holder: randomUUID(), leaseMs: 60_000, instance: 'spec' };
  return (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0]!.kind;
}

it.each([
  ['connectionString of pg', withConnectionString],
  ['uri of mysql2', withUri],
  ['options of pg, with a search_path,', withSearchPath],
] as const)('a change of the %s does not move the locks', async (_, open) => {
  const { dataSource, move, disconnect } = await open();
  const backend = typeormBackend({ dataSource });
  ends.push(() => backend.close());
  const key = randomUUID();
  expect(await acquire(backend, key)).toBe('granted');
  move();
  await disconnect();
  const kinds = new Set<string>();
  await until(async () => {
    kinds.add(await acquire(backend, key));
    return kinds.has('taken') || kinds.has('granted');
  });
  expect(kinds).not.toContain('granted');
});

it.each([
  ['url', (url: string) => ({ url })],
  ['connectionString', (connectionString: string) => ({ extra: { connectionString } })],
])('user and password in the %s are not part of the address', (_, optionsOf) => {
  const address = (url: string) => addressOf({ type: 'postgres', ...optionsOf(url) });
  expect(address('postgres://one:first@host/db?a=b')).toBe(address('postgres://two:second@host/db?a=b'));
  expect(address('postgres://host/db?user=one&password=first&a=b')).toBe(
    address('postgres://host/db?user=two&password=second&a=b'),
  );
  expect(address('postgres://host/db?a=b')).not.toBe(address('postgres://host/other?a=b'));
});
