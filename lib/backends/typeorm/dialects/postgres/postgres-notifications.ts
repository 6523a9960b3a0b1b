import type { Table } from '../dialect.js';

/** What we use of a client of `pg`. */
interface PgClient {
  readonly processID: number;
  on(event: 'notification', listener: (notice: { channel: string; payload?: string }) => void): void;
  query(sql: string): Promise<{ rows: { pid: string }[] }>;
}

const MAX_NAME_LENGTH = 63;

/** A table of the same name in another schema shares it, which costs both of them a needless call at times. */
export const channelNameOf = ({ name }: Table) => `freed_${name}`.slice(0, MAX_NAME_LENGTH);

/**
 * Behind a pooler, calls would go to whoever uses the server's connection when they come. It shows in the process that
 * serves us: a pooler tells its clients of one that is not there.
 */
export async function listen(
  driverConnection: object,
  table: Table,
  onReleased: (key: string) => void,
): Promise<boolean> {
  const client = driverConnection as PgClient;
  const { rows } = await client.query('SELECT pg_backend_pid() AS pid');
  if (rows[0]?.pid !== String(client.processID)) return false;
  const channel = channelNameOf(table);
  client.on('notification', (notice) => {
    if (notice.channel === channel && notice.payload) onReleased(notice.payload);
  });
  await client.query(`LISTEN "${channel}"`);
  return true;
}
