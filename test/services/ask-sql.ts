import { DataSource } from 'typeorm';

/** Proves that a database answers, at the url and through the driver that the tests use. */
export async function askSql(type: 'postgres' | 'mariadb', url: string): Promise<void> {
  const database = new DataSource({ type, url });
  try {
    await database.initialize();
    await database.query('SELECT 1');
  } finally {
    if (database.isInitialized) await database.destroy();
  }
}
