import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';

/** The used part of a connection of `pg`, without the client around it. */
interface PgConnection extends EventEmitter {
  readonly stream: Socket;
  readonly sslNegotiation?: string;
  connect(port: number | string, host?: string): void;
  requestSsl(): void;
  cancel(processID: number, secretKey: unknown): void;
}

/** The option `stream` of the application: a connector or a tunnel that leads to the server instead of an address. */
const STREAM = Symbol('stream');

/** Makes {@link cancelStatement} reach the server in the way of the client. */
export const rememberStream = (client: object, stream: unknown): void =>
  void Object.defineProperty(client, STREAM, { value: stream });

interface PgClient {
  readonly [STREAM]?: unknown;
  readonly connection: PgConnection;
  readonly host: string;
  readonly port: number;
  readonly ssl: unknown;
  readonly processID: number;
  readonly secretKey: unknown;
}

/**
 * Asks the server to end the statement that runs on the connection, because a server does not notice that the client of a waiting
 * statement has gone. Resolves when the server has closed the request's own connection, or when the signal aborts.
 *
 * A late request ends no statement of others. The secret key belongs to this connection, over which nothing more is sent. Behind
 * PgBouncer it is valid only while this client is connected, so the socket must stay open until the request has ended. PgBouncer
 * from 1.18 on gives the server connection to no other client before that.
 */
export function cancelStatement(driverConnection: object, signal: AbortSignal): Promise<void> {
  const {
    connection,
    host,
    port,
    ssl,
    processID,
    secretKey,
    [STREAM]: stream,
  } = driverConnection as PgClient;
  // A stream that the application has opened itself is that of the connection, and there is no other.
  if (stream !== undefined && typeof stream !== 'function') return Promise.resolve();
  const { sslNegotiation } = connection;
  const Connection = connection.constructor as new (options: object) => PgConnection;
  const request = new Connection({ ssl, sslNegotiation, stream });
  return new Promise((resolve) => {
    const end = () => {
      request.stream.destroy();
      resolve();
    };
    const send = () => request.cancel(processID, secretKey);
    signal.addEventListener('abort', end, { once: true });
    request.on('error', end).on('end', end);
    if (ssl && sslNegotiation !== 'direct') request.on('connect', () => request.requestSsl());
    request.on(ssl ? 'sslconnect' : 'connect', send);
    if (host.startsWith('/')) request.connect(`${host}/.s.PGSQL.${port}`);
    else request.connect(port, host);
  });
}
