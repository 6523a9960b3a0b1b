import type { Table } from '../dialect.js';

/** The used part of a `pg` client. */
interface PgClient {
  readonly processID: number;
  on(event: 'notification', listener: (notice: { channel: string; payload?: string }) => void): void;
  query(sql: string): Promise<{ rows: { pid: string }[] }>;
}

const MAX_NAME_LENGTH = 63;

/** A table of the same name in another schema shares the channel. That costs needless notifications, but does no harm. */
export const channelNameOf = ({ name }: Table) => `freed_${name}`.slice(0, MAX_NAME_LENGTH);

/**
 * Listens for released keys. Returns `false` behind a pooler, where a notification would reach whichever client uses the
 * server's connection at that moment. A pooler is detected by the process ID that it reports, which is not that of the
 * server process.
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
