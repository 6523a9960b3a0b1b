import type { Redis } from 'ioredis';
import { peer } from '../peers.js';

/** A client of the ioredis that the peers are installed with, which is connected. */
export async function peerRedis(url: string): Promise<Redis> {
  const client = new (peer<{ Redis: new (url: string) => Redis }>('ioredis').Redis)(url);
  await client.ping();
  return client;
}
