import { describe, expect, it } from '@jest/globals';
import {
  type TypeormBackendOptions,
  distributedLockEntity,
  distributedLockMigration,
  typeormBackend,
} from '../../../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../../../lib/core/errors.js';

const refusalOf = (options: unknown): string => {
  try {
    typeormBackend(options as TypeormBackendOptions);
  } catch (error) {
    expect(error).toBeInstanceOf(LockConfigError);
    return (error as Error).message;
  }
  throw new Error('expected a refusal');
};

describe('the options of typeormBackend', () => {
  it('names the databases that can keep locks when it gets another', () => {
    expect(refusalOf({ dataSource: { type: 'oracle' } })).toContain(
      "'postgres' or 'mysql' or 'mariadb' or 'better-sqlite3', got 'oracle'",
    );
  });

  it('tells all faults at once', () => {
    const refusal = refusalOf({ dataSource: 'db', table: 'a b', createTable: 'yes', schema: 'x' });
    for (const fault of [
      "no option 'schema'",
      'options.dataSource',
      'options.table',
      'options.createTable',
    ]) {
      expect(refusal).toContain(fault);
    }
  });

  it('says first that the braces are missing where it gets a data source by itself', () => {
    const [ready, options] = [
      { createQueryRunner: () => undefined, options: {} },
      { type: 'postgres', url: 'postgres://db' },
    ];
    for (const [given, kind] of [
      [ready, 'a data source'],
      [options, 'the options of a data source'],
    ] as const) {
      expect(refusalOf(given)).toBe(
        `Wrong options of typeormBackend: write typeormBackend({ dataSource }), got ${kind} without the braces.`,
      );
    }
  });

  it.each(['url', 'host'])(
    'refuses a %s without a value, by which the driver would go to localhost',
    (name) => {
      expect(refusalOf({ dataSource: { type: 'postgres', [name]: undefined } })).toContain(
        `options.dataSource.${name} has no value, probably because an environment variable is not set`,
      );
      expect(() =>
        typeormBackend({ dataSource: { type: 'postgres', url: 'postgres://db', host: undefined } as never }),
      ).not.toThrow();
    },
  );

  it.each([undefined, ''])(
    'refuses SQLite with %j for its file, which no other process would share',
    (database) => {
      expect(refusalOf({ dataSource: { type: 'better-sqlite3', database } })).toContain(
        'options.dataSource.database has no value, probably because an environment variable is not set',
      );
    },
  );

  it('refuses a call without options', () => {
    expect(refusalOf(undefined)).toContain('options.dataSource');
  });

  it.each([
    [{}, 'expected options.dataSource to be a DataSource or its options, got undefined.'],
    [{ dataSource: undefined }, 'got undefined: options.dataSource has no value yet'],
    [{ dataSource: null }, 'got null'],
  ])('names what a missing data source is (%j)', (options, expected) => {
    expect(refusalOf(options)).toContain(expected);
  });

  it.each(['a;b', 'a"b', 'a`b', '1a', '', 'a.b.c', 'x'.repeat(64)])('refuses the table name %j', (table) => {
    expect(refusalOf({ dataSource: { type: 'postgres' }, table })).toContain('options.table');
  });

  it('takes a schema with the table on PostgreSQL only', () => {
    expect(typeormBackend({ dataSource: { type: 'postgres' }, table: 'app.locks' }).name).toBe('postgres');
    expect(refusalOf({ dataSource: { type: 'mysql' }, table: 'app.locks' })).toContain('options.table');
  });

  it('refuses an entity for an unknown database and a migration for an impossible table', () => {
    expect(() => distributedLockEntity({ type: 'oracle' as 'postgres' })).toThrow(LockConfigError);
    expect(() => distributedLockMigration({ table: 'a b' })).toThrow(LockConfigError);
  });
});
