import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, it } from 'vitest';
import { JuteWriter } from '../../../../lib/backends/zookeeper/wire/jute.js';
import { deadlineIn } from '../../../../lib/core/requests/deadline.js';
import { SESSION_TIMEOUT_MS, openZookeeperClient } from '../../../support/zookeeper.js';

it('a server that opens no session is not asked again and again', async () => {
  let connections = 0;
  const refusal = new JuteWriter().int(0).int(0).long(0n).bytes(Buffer.alloc(16)).bool(false).toFrame();
  const fake = await startFake(() => {
    connections += 1;
    return refusal;
  });
  await expect(fake.client.ready(deadlineIn(1_000))).rejects.toThrow(/opens no session/);
  expect(connections).toBe(1);
  await fake.stop();
});

const authFailed = new JuteWriter().int(-4).long(0n).int(-115).toFrame();
const tooLong = Buffer.alloc(4, 0xff);

it.each([
  ['a refusal of the user', authFailed, /rejects the user or the password/],
  ['a message that is none', tooLong, /cannot be reached/],
])('a connection that ends with %s behind the handshake is opened anew', async (_, end, reason) => {
  let connections = 0;
  const session = new JuteWriter()
    .int(0)
    .int(SESSION_TIMEOUT_MS)
    .long(9n)
    .bytes(Buffer.alloc(16, 1))
    .bool(false);
  const fake = await startFake(() => {
    connections += 1;
    return Buffer.concat([session.toFrame(), end]);
  });
  for (const tries of [1, 2]) {
    await expect(fake.client.ready(deadlineIn(1_000))).rejects.toThrow(reason);
    expect(connections).toBe(tries);
  }
  await fake.stop();
});

/** A server that answers the first message of each connection, and a client of it. */
async function startFake(answer: () => Buffer) {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.write(answer()));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = openZookeeperClient(`127.0.0.1:${port}`);
  const stop = async () => {
    await client.close(false);
    server.close();
  };
  return { client, stop };
}
