import { randomBytes } from 'node:crypto';
import { DataSource } from 'typeorm';
import { serviceUrl } from './environment.js';

export interface PostgresDatabase {
  readonly name: string;
  readonly url: string;
  /** Asks the server directly, as the user of the other specs. */
  query<Row>(sql: string, parameters?: unknown[]): Promise<Row[]>;
  drop(): Promise<void>;
}

/** A database of its own on the server of all specs, with these defaults for its sessions. */
export async function createPostgresDatabase(
  defaults: Readonly<Record<string, string>> = {},
): Promise<PostgresDatabase> {
  const server = await new DataSource({
    type: 'postgres',
    url: serviceUrl('TEST_POSTGRES_URL'),
  }).initialize();
  const name = `spec_${randomBytes(6).toString('hex')}`;
  await server.query(`CREATE DATABASE ${name}`);
  for (const [setting, value] of Object.entries(defaults)) {
    await server.query(`ALTER DATABASE ${name} SET ${setting} = '${value}'`);
  }
  const url = urlOf(serviceUrl('TEST_POSTGRES_URL'), name);
  return {
    ...{ name, url },
    query: (sql, parameters) => server.query(sql, parameters),
    async drop() {
      await server.query(`DROP DATABASE ${name} WITH (FORCE)`);
      await server.destroy();
    },
  };
}

/** The same server or pooler, and another of its databases. */
export function urlOf(server: string, database: string): string {
  const url = new URL(server);
  url.pathname = `/${database}`;
  return url.href;
}
