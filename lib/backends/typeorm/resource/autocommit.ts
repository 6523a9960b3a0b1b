import type { QueryRunner } from 'typeorm';

/**
 * Works in a session of MySQL or MariaDB that commits each statement. Where autocommit is off by default, what is written
 * outside of a transaction would be undone when the connection is closed.
 */
export async function withAutocommit<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  const [session] = (await runner.query('SELECT @@autocommit AS isOn')) as { isOn: unknown }[];
  if (Number(session?.isOn) !== 0) return work();
  await runner.query('SET autocommit = 1');
  try {
    return await work();
  } finally {
    await runner.query('SET autocommit = 0');
  }
}
