import { describe, expect, it } from 'vitest';
import { shorterTimeoutMs } from '../../../../../lib/backends/typeorm/connections/connection-options.js';
import { mysql } from '../../../../../lib/backends/typeorm/dialects/mysql/mysql-dialect.js';
import { postgres } from '../../../../../lib/backends/typeorm/dialects/postgres/postgres-dialect.js';

describe('the options of the own connections', () => {
  it('leave the user’s entities, migrations and synchronization alone', () => {
    const [own] = postgres.connectionOptions({
      type: 'postgres',
      host: 'db',
      entities: ['*.entity.js'],
      synchronize: true,
      dropSchema: true,
      migrationsRun: true,
      extra: { max: 50, application_name: 'shop' },
    });
    expect(own).not.toHaveProperty('synchronize');
    expect(own).not.toHaveProperty('dropSchema');
    expect(own).not.toHaveProperty('migrationsRun');
    expect(own).not.toHaveProperty('entities');
    expect(own).toMatchObject({ host: 'db', extra: { max: 5, application_name: 'shop' } });
  });

  it('contain only the master of a replicated database', () => {
    const replication = { master: { host: 'master', ssl: true }, slaves: [{ host: 'replica' }] };
    const [own] = postgres.connectionOptions({ type: 'postgres', url: 'postgres://elsewhere', replication });
    expect(own).toMatchObject({ host: 'master', ssl: true });
    expect(own).not.toHaveProperty('url');
    expect(own).not.toHaveProperty('replication');
  });

  it('omit timeouts in the startup message if a pooler rejects them', () => {
    const [, next] = postgres.connectionOptions({ type: 'postgres' });
    expect(next?.extra).toMatchObject({ statement_timeout: undefined, lock_timeout: undefined });
    const rejections = [
      new Error('unsupported startup parameter: statement_timeout'),
      new Error('unsupported startup parameter in options: jit'),
      new Error("Feature not supported: RDS Proxy currently doesn't support command-line options."),
      Object.assign(new Error('not supported'), { code: '0A000' }),
    ];
    for (const cause of rejections) expect(postgres.classifyError(cause)).toBe('setting refused');
  });

  it('count matched rows on MySQL, even if the user counts changed ones', () => {
    const flags = ['-FOUND_ROWS', 'IGNORE_SPACE'];
    const [own] = mysql.connectionOptions({ type: 'mysql', flags });
    expect((own.extra as { flags: unknown }).flags).toEqual(['IGNORE_SPACE']);
  });

  it('keep the shorter of two timeouts, and treat 0 as none', () => {
    expect([
      shorterTimeoutMs(5, 3),
      shorterTimeoutMs(5, 9),
      shorterTimeoutMs(5, 0),
      shorterTimeoutMs(5, undefined),
    ]).toEqual([3, 5, 5, 5]);
  });
});
