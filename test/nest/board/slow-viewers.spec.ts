import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { type AddressInfo, type Server, type Socket, connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, expect, it } from 'vitest';
import type { INestApplication } from '@nestjs/common';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test } from '@nestjs/testing';
import { memoryBackend } from '../../../lib/backends/memory/index.js';
import type { BoardFeed, Viewer } from '../../../lib/board/board-feed.js';
import { openStream } from '../../../lib/board/board-stream.js';
import type { BoardResponse } from '../../../lib/board/http.js';
import { LockBoardModule, type LockBoardModuleOptions } from '../../../lib/board/index.js';
import { DistributedLockModule, LockService } from '../../../lib/index.js';
import type { LockBackend } from '../../../lib/core/backend.js';

import { Gate } from '../../support/gate.js';
import { until } from '../../support/until.js';

let app: INestApplication | undefined;
const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) end();
  await app?.close();
  app = undefined;
});

/** More than the system keeps for a connection whose other end does not read. */
const PAGE_LENGTH = 20_000_000;

function backendWithLargePage() {
  const backend = memoryBackend();
  const list = backend.list.bind(backend);
  const counts = { reads: 0 };
  backend.list = async (...parameters) => {
    counts.reads += 1;
    const page = await list(...parameters);
    return { ...page, locks: page.locks.map((lock) => ({ ...lock, instance: 'x'.repeat(PAGE_LENGTH) })) };
  };
  return { backend, counts };
}

async function bootHttp2({
  backend,
  guards,
}: {
  backend: LockBackend;
  guards: LockBoardModuleOptions['guards'];
}) {
  const lockModule = DistributedLockModule.forRoot({ backend, shutdown: { drainMs: 0, abortGraceMs: 0 } });
  const module = await Test.createTestingModule({
    imports: [lockModule, LockBoardModule.forRoot({ guards })],
  }).compile();
  app = module.createNestApplication(new FastifyAdapter({ http2: true } as object), { logger: false });
  await app.listen(0, '127.0.0.1');
  const streams: Duplex[] = [];
  (app.getHttpServer() as Server).on('stream', (stream: Duplex) => streams.push(stream));
  return { url: await app.getUrl(), streams };
}

/** A viewer whose browser does not read, until it is resumed. */
async function openViewer() {
  const state: { viewer?: Viewer; isRemoved: boolean } = { isRemoved: false };
  const feed = {
    add: (added: Viewer) => {
      state.viewer = added;
      return () => (state.isRemoved = true);
    },
  } as unknown as BoardFeed;
  const view = { prefix: '', cursor: undefined };
  const server = createServer((_, response) =>
    openStream(response as unknown as BoardResponse, { feed, view, about: {} }),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ends.push(() => server.close());
  const sockets: Socket[] = [];
  server.on('connection', (socket) => sockets.push(socket));
  const browser = connect((server.address() as AddressInfo).port, '127.0.0.1');
  ends.push(() => browser.destroy());
  browser.pause();
  browser.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await until(() => state.viewer !== undefined);
  return { viewer: state.viewer!, browser, sockets, isRemoved: () => state.isRemoved };
}

/** So that a guard can be asked again, and the store is not read for nobody. */
it('a stream that ends cuts off a viewer that does not read', async () => {
  const { viewer, sockets, isRemoved } = await openViewer();
  viewer.send('locks', { text: 'x'.repeat(PAGE_LENGTH) });
  viewer.end();
  await until(() => sockets[0]!.destroyed);
  expect(isRemoved()).toBe(true);
});

it('a viewer that reads slowly gets the newest state of each part of the page', async () => {
  const { viewer, browser } = await openViewer();
  viewer.send('events', { text: 'x'.repeat(PAGE_LENGTH) });
  for (const state of ['older', 'newest']) {
    viewer.send('locks', { state: `locks ${state}` });
    viewer.send('jobs', { text: 'x'.repeat(PAGE_LENGTH), state: `jobs ${state}` });
    viewer.send('store', { state: `store ${state}` });
  }
  let end = '';
  const found: string[] = [];
  browser.on('data', (bytes: Buffer) => {
    const text = end + bytes.toString();
    for (const name of ['locks', 'jobs', 'store'])
      for (const state of ['older', 'newest'])
        if (text.includes(`"${name} ${state}"`) && !found.includes(`${name} ${state}`))
          found.push(`${name} ${state}`);
    end = text.slice(-100);
  });
  browser.resume();
  await until(() => found.length === 3);
  expect(found).toEqual(['locks newest', 'jobs newest', 'store newest']);
});

it('over HTTP/2, a browser that has gone away while a guard decided is no viewer', async () => {
  const counts = { reads: 0 };
  const backend = memoryBackend();
  const list = backend.list.bind(backend);
  backend.list = (...parameters) => {
    counts.reads += 1;
    return list(...parameters);
  };
  const [asked, decided] = [new Gate(), new Gate()];
  const canActivate = async () => {
    asked.open();
    await decided.passed;
    return true;
  };
  const { url, streams } = await bootHttp2({ backend, guards: [{ canActivate }] });
  const session = connectHttp2(url);
  ends.push(() => session.destroy());
  const request = session.request({ ':path': '/locks/stream' });
  await asked.passed;
  request.close();
  await until(() => streams[0]!.destroyed);
  decided.open();
  // Longer than two polls.
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  expect(counts.reads).toBe(0);
});

it('over HTTP/2, a viewer that does not read costs the memory of one state', async () => {
  const { backend, counts } = backendWithLargePage();
  const { url, streams } = await bootHttp2({ backend, guards: 'none' });
  await app!.get(LockService).acquire('report');
  const session = connectHttp2(url);
  ends.push(() => session.destroy());
  session.request({ ':path': '/locks/stream' }).pause();
  await until(() => counts.reads >= 4);
  expect(streams[0]!.writableLength).toBeLessThan(1.5 * PAGE_LENGTH);
});
