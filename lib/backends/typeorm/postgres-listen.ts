import type { Table } from './dialect.js';

/** What we use of a client of `pg`. */
interface Client {
  readonly processID: number;
  on(event: 'notification', listener: (notice: { channel: string; payload?: string }) => void): void;
  query(sql: string): Promise<{ rows: { pid: string }[] }>;
}

const LONGEST_NAME = 63;

/** A table of the same name in another schema shares it, which costs both of them a needless call at times. */
export const channelOf = ({ name }: Table) => `freed_${name}`.slice(0, LONGEST_NAME);

/**
 * Behind a pooler, calls would go to whoever uses the server's connection when they come. It shows in the process that
 * serves us: a pooler tells its clients of one that is not there.
 */
export async function listen(
  connection: object,
  table: Table,
  onFreed: (key: string) => void,
): Promise<boolean> {
  const client = connection as Client;
  const { rows } = await client.query('SELECT pg_backend_pid() AS pid');
  if (rows[0]?.pid !== String(client.processID)) return false;
  const channel = channelOf(table);
  client.on('notification', (notice) => {
    if (notice.channel === channel && notice.payload) onFreed(notice.payload);
  });
  await client.query(`LISTEN "${channel}"`);
  return true;
}
