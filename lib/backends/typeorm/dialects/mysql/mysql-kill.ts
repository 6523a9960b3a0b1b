import type { Socket } from 'node:net';

/** The used part of a connection of `mysql2` or `mysql` that belongs to a pool. */
interface PooledConnection {
  readonly threadId: number;
  readonly stream: Socket;
  readonly _pool: { getConnection(done: (error: unknown, connection: PooledConnection) => void): void };
  query(sql: string, done: (error: unknown, rows: readonly unknown[]) => void): void;
  destroy(): void;
}

/**
 * Kills the connection on the server, because a server does not notice that the client of a waiting statement has gone. Resolves
 * when the server has replied, or when the signal aborts.
 *
 * The ids of connections begin anew when a server is started again. So it is killed only if the server lists it with the port of
 * this socket, and only while this socket is open. Behind a proxy the ports differ, and nothing is killed.
 */
export function killConnection(driverConnection: object, signal: AbortSignal): Promise<void> {
  const { threadId, stream, _pool: pool } = driverConnection as PooledConnection;
  // A Unix socket has no port.
  const ofSocket = stream.localPort === undefined ? '' : ` AND HOST LIKE '%:${stream.localPort}'`;
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true });
    pool.getConnection((error, connection) => {
      if (error) {
        resolve();
        return;
      }
      const end = () => {
        connection.destroy();
        resolve();
      };
      if (signal.aborted) {
        end();
        return;
      }
      signal.addEventListener('abort', end, { once: true });
      const listed = `SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = ${threadId}${ofSocket}`;
      connection.query(listed, (failure, rows) => {
        if (failure || rows.length === 0 || signal.aborted) end();
        else connection.query(`KILL ${threadId}`, end);
      });
    });
  });
}
