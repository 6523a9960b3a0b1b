import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { entriesOf } from '../../lib/backends/zookeeper/keyspace.js';
import { getChildren } from '../../lib/backends/zookeeper/wire/operations.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { RestartableServer } from '../faults/injection/restartable-server.js';
import { TICK_TIME_MS, startZookeeper } from '../services/zookeeper.js';
import { until } from '../support/until.js';
import { SESSION_TIMEOUT_MS, onZookeeper, zookeeperKeys } from '../support/zookeeper.js';

const TIMEOUT_MS = 5_000;
const LEASE_MS = 60_000;
const FILE_HEADER_BYTES = 16;
/** A checksum and a length. */
const HEADER_BYTES = 12;
const MAX_SEQUENCE = 2 ** 31 - 1;

function adler32(bytes: Buffer): bigint {
  let [low, high] = [1, 0];
  for (const byte of bytes) {
    low = (low + byte) % 65_521;
    high = (high + low) % 65_521;
  }
  return BigInt(high) * 65_536n + BigInt(low);
}

/** Where the number of the creation lies in its bucket: after the path, the data, the ACL and the kind of the node. */
function offsetOfNumber(transaction: Buffer): number {
  let at = 32;
  const skipText = () => (at += 4 + transaction.readInt32BE(at));
  skipText();
  skipText();
  const acls = transaction.readInt32BE(at);
  at += 4;
  for (let count = 0; count < acls; count += 1) {
    at += 4;
    skipText();
    skipText();
  }
  return at + 1;
}

/** Lets the bucket of the entry go on from this number, as after as many entries. The server has been stopped. */
async function setNumber(dataDir: string, holder: string, number: number): Promise<void> {
  const folder = join(dataDir, 'data', 'version-2');
  for (const name of await readdir(folder)) {
    if (!name.startsWith('log.')) continue;
    const log = await readFile(join(folder, name));
    let at = FILE_HEADER_BYTES;
    while (at + HEADER_BYTES <= log.length && log.readInt32BE(at + 8) > 0) {
      const start = at + HEADER_BYTES;
      const transaction = log.subarray(start, start + log.readInt32BE(at + 8));
      if (transaction.includes(holder)) {
        transaction.writeInt32BE(number, offsetOfNumber(transaction));
        log.writeBigInt64BE(adler32(transaction), at);
      }
      at = start + transaction.length + 1;
    }
    await writeFile(join(folder, name), log);
  }
}

const readSequences = (servers: string, key: string) =>
  onZookeeper(servers, async (client) => {
    const bucket = zookeeperKeys.bucketOf(key);
    const { names } = await client.read(getChildren(bucket), TIMEOUT_MS);
    return entriesOf(bucket, names, key).map(({ sequence }) => sequence);
  });

it('nobody is granted a lock near the end of the numbers of a bucket, which begins anew once its locks have ended', async () => {
  const server = await RestartableServer.start((options) => startZookeeper(options), {});
  const servers = server.service.url;
  const backend = zookeeperBackend({
    ...{ servers, sessionTimeoutMs: SESSION_TIMEOUT_MS, tickTimeMs: TICK_TIME_MS },
  });
  try {
    const [holder, waiter] = [createAcquisitionId('key'), createAcquisitionId('key')];
    const acquire = async (acquisition: typeof holder) => {
      const settings = { leaseMs: LEASE_MS, retryWithinMs: LEASE_MS };
      const request = createAcquireRequest(acquisition, settings);
      return (await backend.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0];
    };
    await until(async () => (await acquire(holder))?.kind === 'granted');
    await server.kill();
    await setNumber(server.service.dataDir, holder.holder, MAX_SEQUENCE - 10);
    await server.startAgain();
    await until(() =>
      backend.check(TIMEOUT_MS).then(
        () => true,
        () => false,
      ),
    );
    for (let count = 0; count < 20; count += 1)
      expect(await acquire(waiter)).toMatchObject({
        ...{ kind: 'unknown', cause: { message: expect.stringMatching(/used up/) as string } },
      });
    expect(await readSequences(servers, 'key')).toEqual([0]);
    const { release } = await backend.execute({ release: [holder] }, TIMEOUT_MS);
    expect(release[0]?.kind).toBe('released');
    await until(async () => (await acquire(waiter))?.kind === 'granted');
    expect(await readSequences(servers, 'key')).toEqual([0]);
  } finally {
    await backend.close();
    await server.close();
  }
}, 120_000);
