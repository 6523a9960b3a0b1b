import { Redis } from 'ioredis';

/** Asks one server over a connection of its own, and gives up when it is not there. */
export async function askRedis<T>(url: string, ask: (admin: Redis) => Promise<T>): Promise<T> {
  const admin = new Redis(url, {
    lazyConnect: true,
    retryStrategy: () => null,
    commandTimeout: 5_000,
    maxLoadingRetryTime: 100,
  });
  // Without a listener ioredis prints every refused connection.
  admin.on('error', () => undefined);
  await admin.connect();
  try {
    return await ask(admin);
  } finally {
    admin.disconnect();
  }
}

/** The lines `name:value` of an answer to INFO. */
export const fieldsOf = (info: string): ReadonlyMap<string, string> =>
  new Map(
    info.split('\r\n').map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]),
  );
