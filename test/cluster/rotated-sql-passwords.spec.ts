import { randomUUID } from 'node:crypto';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { bareLocks } from '../support/bare-locks.js';
import { startMariadb } from '../services/mariadb.js';
import { startPostgres } from '../services/postgres.js';
import { until } from '../support/until.js';

/** Longer than it takes to start a server. */
const LIMIT_MS = 120_000;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A PostgreSQL that asks everybody but its superuser for a password. */
async function strictPostgres(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'lock-hba-'));
  ends.push(() => rm(folder, { recursive: true }));
  const file = join(folder, 'pg_hba.conf');
  await writeFile(file, 'host all lock 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n');
  await chmod(folder, 0o755);
  const { url, stop } = await startPostgres({ args: ['-c', `hba_file=${file}`] });
  ends.push(stop);
  return url;
}

async function mariadb(): Promise<string> {
  const { url, stop } = await startMariadb();
  ends.push(stop);
  return url;
}

const servers = {
  postgres: {
    start: strictPostgres,
    create: [`CREATE ROLE app LOGIN SUPERUSER PASSWORD 'first'`],
    change: (password: string) => `ALTER ROLE app PASSWORD '${password}'`,
    killSessions: `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`,
  },
  mariadb: {
    start: mariadb,
    create: [`CREATE USER 'app'@'%' IDENTIFIED BY 'first'`, `GRANT ALL ON *.* TO 'app'@'%'`],
    change: (password: string) => `ALTER USER 'app'@'%' IDENTIFIED BY '${password}'`,
    killSessions: 'KILL USER app',
  },
};

interface Given {
  readonly dataSource: DataSource | DataSourceOptions;
  rotate(password: string): void;
}

/** How an application gives its password. */
const WAYS: Readonly<Record<string, (options: DataSourceOptions, url: URL) => Given>> = {
  'the options that were given': (options, { hostname, port, pathname }) => {
    const address = { host: hostname, port: Number(port), database: pathname.slice(1) };
    const account = { username: 'app', password: 'first' };
    const dataSource = { ...options, ...address, ...account } as DataSourceOptions;
    return { dataSource, rotate: (password) => Object.assign(dataSource, { password }) };
  },
  'the options of a data source': (options, { hostname, port, pathname }) => {
    const address = { host: hostname, port: Number(port), database: pathname.slice(1) };
    const account = { username: 'app', password: 'first' };
    const dataSource = new DataSource({ ...options, ...address, ...account } as DataSourceOptions);
    return { dataSource, rotate: (password) => Object.assign(dataSource.options, { password }) };
  },
  'a URL': (options, url) => {
    const urlWith = (password: string) => Object.assign(new URL(url), { username: 'app', password }).href;
    const dataSource = { ...options, url: urlWith('first') } as DataSourceOptions;
    return { dataSource, rotate: (password) => Object.assign(dataSource, { url: urlWith(password) }) };
  },
};

const FUNCTION: typeof WAYS = {
  'a function': (options, { hostname, port, pathname }) => {
    let current = 'first';
    const address = { host: hostname, port: Number(port), database: pathname.slice(1) };
    const account = { username: 'app', password: () => current };
    const dataSource = { ...options, ...address, ...account } as DataSourceOptions;
    return { dataSource, rotate: (password) => void (current = password) };
  },
};

describe.each([
  ['postgres' as const, { ...WAYS, ...FUNCTION }],
  ['mariadb' as const, WAYS],
])('on %s a rotated password is taken', (type, ways) => {
  it(
    `from ${Object.keys(ways).join(', ')}`,
    async () => {
      const { start, create, change, killSessions } = servers[type];
      const url = await start();
      const admin = await new DataSource({ type, url }).initialize();
      ends.push(() => admin.destroy());
      for (const statement of create) await admin.query(statement);
      for (const way of Object.values(ways)) {
        await admin.query(change('first'));
        const { dataSource, rotate } = way({ type }, new URL(url));
        const backend = typeormBackend({ dataSource });
        const locks = bareLocks({ backend, namespace: randomUUID() });
        ends.push(() => locks.close());
        const isGranted = () => locks.withLock('key', { waitMs: 500 }, () => true).catch(() => false);
        await until(isGranted);
        for (const password of ['second', 'third']) {
          await admin.query(change(password));
          rotate(password);
          await admin.query(killSessions);
          await until(isGranted);
        }
        expect(await isGranted()).toBe(true);
        await locks.close();
        await backend.close();
        const late = way({ type }, new URL(url));
        const other = typeormBackend({ dataSource: late.dataSource });
        ends.push(() => other.close());
        const request = { key: randomUUID(), holder: randomUUID(), leaseMs: 10_000, instance: 'spec' };
        const asked = other.execute({ acquire: [request] }, LIMIT_MS);
        late.rotate('third'); // Its connection is on the way with the first password.
        expect((await asked).acquire[0]).toMatchObject({ kind: 'granted' });
        await other.close();
      }
    },
    LIMIT_MS,
  );
});
