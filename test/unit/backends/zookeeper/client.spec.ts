import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, it } from 'vitest';
import { JuteWriter } from '../../../../lib/backends/zookeeper/wire/jute.js';
import { deadlineIn } from '../../../../lib/core/requests/deadline.js';
import { openZookeeperClient } from '../../../support/zookeeper.js';

it('a server that opens no session is not asked again and again', async () => {
  let connections = 0;
  const refusal = new JuteWriter().int(0).int(0).long(0n).bytes(Buffer.alloc(16)).bool(false).toFrame();
  const server = createServer((socket) => {
    connections += 1;
    socket.on('error', () => undefined);
    socket.once('data', () => socket.write(refusal));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = openZookeeperClient(`127.0.0.1:${port}`);
  try {
    await expect(client.ready(deadlineIn(1_000))).rejects.toThrow(/opens no session/);
    expect(connections).toBe(1);
  } finally {
    await client.close(false);
    server.close();
  }
});
