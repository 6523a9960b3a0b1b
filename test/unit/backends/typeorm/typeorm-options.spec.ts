import { describe, expect, it } from 'vitest';
import {
  type TypeormBackendOptions,
  distributedLockEntity,
  distributedLockMigration,
  typeormBackend,
} from '../../../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../../../lib/core/errors.js';

const errorOf = (options: unknown): string => {
  try {
    typeormBackend(options as TypeormBackendOptions);
  } catch (error) {
    expect(error).toBeInstanceOf(LockConfigError);
    return (error as Error).message;
  }
  throw new Error('expected an error');
};

describe('the options of typeormBackend', () => {
  it('names the supported databases when it gets another', () => {
    expect(errorOf({ dataSource: { type: 'oracle' } })).toContain(
      "'postgres' or 'mysql' or 'mariadb' or 'better-sqlite3', got 'oracle'",
    );
  });

  it('says that the type is missing when it gets a URL alone', () => {
    expect(errorOf({ dataSource: { url: 'postgres://db' } })).toContain(
      "expected options.dataSource.type to be 'postgres' or 'mysql' or 'mariadb' or 'better-sqlite3', got undefined.",
    );
  });

  it('reports all errors at once', () => {
    const wrong = { dataSource: 'db', table: 'a b', createTable: 'yes', tokenMemoryMs: 0, schema: 'x' };
    const message = errorOf(wrong);
    for (const error of [
      "no option 'schema'",
      'options.dataSource',
      'options.table',
      'options.createTable',
      'tokenMemoryMs',
    ]) {
      expect(message).toContain(error);
    }
  });

  it('says that the braces are missing when it gets a bare data source', () => {
    const [ready, options] = [
      { createQueryRunner: () => undefined, options: {} },
      { type: 'postgres', url: 'postgres://db' },
    ];
    expect(errorOf(ready)).toBe(
      'Wrong options of typeormBackend: write typeormBackend({ dataSource }), got a data source without the braces.',
    );
    expect(errorOf(options)).toBe(
      'Wrong options of typeormBackend: write typeormBackend({ dataSource: { type, … } }), got the options of a data source by themselves.',
    );
  });

  it('says that a repository is no data source', () => {
    expect(errorOf({ dataSource: { manager: {}, target: 'Product' } })).toMatch(
      /a DataSource or its options, got a Repository: inject DataSource/,
    );
  });

  it.each([
    [undefined, /expected options.table to be a text/],
    ['shop_locks', /expected options to be an object, got 'shop_locks'/],
    [{ table: 'shop locks' }, /a name of letters, digits and underscores/],
  ])('a migration of %j is refused', (given, message) => {
    const create = () => distributedLockMigration(given as { table: string });
    expect(create).toThrow(LockConfigError);
    expect(create).toThrow(message);
  });

  it.each(['url', 'host'])(
    'rejects a %s without a value, with which the driver would connect to localhost',
    (name) => {
      expect(errorOf({ dataSource: { type: 'postgres', [name]: undefined } })).toContain(
        `options.dataSource.${name} has no value, probably because an environment variable is not set`,
      );
      expect(() =>
        typeormBackend({ dataSource: { type: 'postgres', url: 'postgres://db', host: undefined } as never }),
      ).not.toThrow();
    },
  );

  it.each([
    ['postgres', 'file:./dev.db', 'file'],
    ['postgres', 'mysql://user:secret@db/shop', 'mysql'],
    ['mariadb', 'postgresql://db/shop', 'postgresql'],
  ])('rejects the URL of another database for %s: %s', (type, url, scheme) => {
    const message = errorOf({ dataSource: { type, url } });
    expect(message).toContain(
      `to be the address of a ${type} database, got one that begins with '${scheme}:'`,
    );
    expect(message).not.toContain('secret');
  });

  it.each([
    ['postgres', 'postgresql://db'],
    ['mariadb', 'mysql://db'],
    ['mysql', 'mariadb://db'],
    ['postgres', 'cloud-sql://db'],
    ['postgres', 'db.example:5432'],
  ])('takes the URL of a %s: %s', (type, url) => {
    expect(() => typeormBackend({ dataSource: { type, url } as never })).not.toThrow();
  });

  it.each([undefined, ''])(
    'rejects SQLite with %j as its file, which no other process could open',
    (database) => {
      expect(errorOf({ dataSource: { type: 'better-sqlite3', database } })).toContain(
        'options.dataSource.database has no value, probably because an environment variable is not set',
      );
    },
  );

  it('rejects a call without options', () => {
    expect(errorOf(undefined)).toContain('options.dataSource');
  });

  it.each([
    [{}, 'expected options.dataSource to be a DataSource or its options, got undefined.'],
    [
      { dataSource: undefined },
      'got undefined: options.dataSource has no value yet, probably because `inject: [DataSource]` is missing in forRootAsync',
    ],
    [{ dataSource: null }, 'got null'],
  ])('names what a missing data source is (%j)', (options, expected) => {
    expect(errorOf(options)).toContain(expected);
  });

  it.each(['a;b', 'a"b', 'a`b', '1a', '', 'a.b.c', 'x'.repeat(64)])('rejects the table name %j', (table) => {
    expect(errorOf({ dataSource: { type: 'postgres' }, table })).toContain('options.table');
  });

  it('takes a schema with the table on PostgreSQL only', () => {
    expect(typeormBackend({ dataSource: { type: 'postgres' }, table: 'app.locks' }).name).toBe('postgres');
    expect(errorOf({ dataSource: { type: 'mysql' }, table: 'app.locks' })).toContain('options.table');
  });

  it('rejects an entity for an unknown database and a migration for an impossible table', () => {
    expect(() => distributedLockEntity({ type: 'oracle' as 'postgres' })).toThrow(LockConfigError);
    expect(() => distributedLockMigration({ table: 'a b' })).toThrow(LockConfigError);
  });
});
