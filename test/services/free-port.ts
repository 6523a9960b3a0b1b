import { randomInt } from 'node:crypto';
import getPort from 'get-port';

/**
 * A free loopback port below the range from which the system serves outgoing connections: there, a client that
 * knocks at a stopped server could be given that very port and keep the server from coming back. So could the bus of a
 * Redis Cluster, which listens 10,000 above the port of its node: below that range, and where we give no ports.
 */
export function freePort(): Promise<number> {
  const candidates = Array.from({ length: 50 }, () => randomInt(12_000, 22_000));
  return getPort({ host: '127.0.0.1', port: candidates });
}
