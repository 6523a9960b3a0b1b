import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { describeStoreFailure } from '../../lib/core/store-failures.js';
import { dataSourceOptions, mariadbStore, postgresStore } from '../support/stores.js';
import { until } from '../support/until.js';

const LIMIT_MS = 30_000;

/** What PostgreSQL says once a connection can be used, and when it ends one. */
const READY = Buffer.from('Z\0\0\0\x05I', 'latin1');
const FATAL = Buffer.from('E\0\0\0\x1eSFATAL\0C57P01\0Mspec ends\0\0', 'latin1');

const ask = async (backend: LockBackend) => {
  const request = { key: randomUUID(), holder: randomUUID(), leaseMs: 10_000, instance: 'spec' };
  return (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0]!;
};

/** Somebody else on the same server. */
async function withStranger(options: DataSourceOptions, work: (stranger: DataSource) => Promise<void>) {
  const stranger = await new DataSource(options).initialize();
  try {
    await work(stranger);
  } finally {
    await stranger.destroy();
  }
}

/** The sessions of a user of the server, who is ours alone. */
const servers = {
  postgres: {
    options: () => dataSourceOptions(postgresStore()),
    create: (user: string) => [`CREATE ROLE ${user} LOGIN SUPERUSER PASSWORD 'spec'`],
    sessions: `SELECT pid AS id FROM pg_stat_activity WHERE usename = $1`,
    kill: (id: string) => `SELECT pg_terminate_backend(${id})`,
  },
  mariadb: {
    options: () => dataSourceOptions(mariadbStore()),
    create: (user: string) => [
      `CREATE USER '${user}'@'%' IDENTIFIED BY 'spec'`,
      `GRANT ALL ON *.* TO '${user}'@'%'`,
    ],
    sessions: `SELECT id FROM information_schema.processlist WHERE user = ? AND command <> 'Killed'`,
    kill: (id: string) => `KILL ${id}`,
  },
};

describe.each(['postgres', 'mariadb'] as const)('a connection that the server has killed, on %s,', (name) => {
  it('is not used again, even without a pause between requests', () =>
    withStranger(servers[name].options(), async (stranger) => {
      const { options, create, sessions, kill } = servers[name];
      const user = `u${randomUUID().replaceAll('-', '').slice(0, 20)}`;
      for (const statement of create(user)) await stranger.query(statement);
      const url = new URL((options() as { url: string }).url);
      Object.assign(url, { username: user, password: 'spec' });
      const backend = typeormBackend({ dataSource: { ...options(), url: url.href } as DataSourceOptions });
      try {
        expect((await ask(backend)).kind).toBe('granted');
        // Sometimes the socket has closed before anybody asks.
        for (let round = 0; round < 10; round += 1) {
          for (const { id } of await stranger.query<{ id: string }[]>(sessions, [user])) {
            await stranger.query(kill(id));
          }
          let [kind, tries] = ['unknown', 0];
          for (; kind === 'unknown' && tries < 1_000; tries += 1) ({ kind } = await ask(backend));
          expect(kind).toBe('granted');
        }
      } finally {
        await backend.close();
      }
    }));
});

describe('a connection to a server that takes no writes', () => {
  it('does not pass the check, which a boot with failOnBoot asks for', async () => {
    const options = dataSourceOptions(postgresStore());
    const extra = { options: '-c default_transaction_read_only=on' };
    const [first, backend] = [options, { ...options, extra }].map((dataSource) =>
      typeormBackend({ dataSource }),
    );
    try {
      await first!.check(LIMIT_MS);
      const refusal = await backend!.check(LIMIT_MS).catch((error: unknown) => error);
      expect(describeStoreFailure(refusal)).toMatch(
        /^takes no writes: connect to the primary.*read-only transaction/,
      );
    } finally {
      await Promise.all([first!.close(), backend!.close()]);
    }
  });

  it('is given up', () =>
    withStranger(dataSourceOptions(postgresStore()), async (stranger) => {
      const options = dataSourceOptions(postgresStore());
      const name = randomUUID();
      const first = typeormBackend({ dataSource: options });
      await first.check(LIMIT_MS);
      await first.close();
      const extra = { application_name: name, options: '-c default_transaction_read_only=on' };
      const backend = typeormBackend({ dataSource: { ...options, extra } });
      try {
        expect(await ask(backend)).toMatchObject({ kind: 'unknown' });
        const sessions = `SELECT FROM pg_stat_activity WHERE application_name = $1`;
        await until(async () => (await stranger.query<unknown[]>(sessions, [name])).length === 0);
      } finally {
        await backend.close();
      }
    }));
});

/** Somebody between us and a server, who carries what either says; and a backend that goes through him. */
async function withBetween(
  options: DataSourceOptions,
  carry: (client: Socket, database: Socket) => void,
  work: (backend: LockBackend) => Promise<void>,
): Promise<void> {
  const url = new URL((options as { url: string }).url);
  const { hostname, port } = url;
  const between = createServer((client) => {
    const database = connect({ host: hostname, port: Number(port) });
    const end = () => [client, database].forEach((socket) => socket.destroy());
    for (const socket of [client, database]) socket.on('error', end).on('close', end);
    carry(client, database);
  });
  between.listen(0, '127.0.0.1');
  await once(between, 'listening');
  url.host = `127.0.0.1:${(between.address() as AddressInfo).port}`;
  const backend = typeormBackend({ dataSource: { ...options, url: url.href } as DataSourceOptions });
  try {
    await work(backend);
  } finally {
    await backend.close();
    between.close();
  }
}

/** TypeORM asks for it when it opens its pool. */
const VERSION = /version\(\)/i;

it.concurrent.each(['postgres', 'mariadb'] as const)(
  'a connection to %s that falls silent while it is opened is closed, and stands in the way of no other',
  async (name) => {
    let silent: Socket | undefined;
    const carry = (client: Socket, database: Socket) => {
      database.pipe(client);
      client.on('data', (packet) => {
        if (!silent && VERSION.test(packet.toString('latin1'))) silent = client;
        if (client !== silent) database.write(packet);
      });
    };
    await withBetween(servers[name].options(), carry, async (backend) => {
      expect((await ask(backend)).kind).toBe('unknown');
      await until(async () => (await ask(backend)).kind === 'granted');
      await until(() => silent?.destroyed === true);
    });
  },
  60_000,
);

it('a connection that PostgreSQL ends in the same packet in which it opens it is an answer, and stops no process', async () => {
  let endings = 0;
  const carry = (client: Socket, database: Socket) => {
    client.pipe(database);
    database.on('data', (packet) => {
      const isOpened = packet.subarray(-READY.length).equals(READY);
      if (!isOpened || endings === 20) return client.write(packet);
      endings += 1;
      return client.end(Buffer.concat([packet, FATAL]));
    });
  };
  await withBetween(servers.postgres.options(), carry, async (backend) => {
    await until(async () => (await ask(backend)).kind === 'granted');
    expect(endings).toBe(20);
  });
});
