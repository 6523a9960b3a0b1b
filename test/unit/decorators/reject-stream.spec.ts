import { createReadStream } from 'node:fs';
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { PassThrough, Readable, Writable } from 'node:stream';
import { ReadableStream } from 'node:stream/web';
import { describe, expect, it } from 'vitest';
import { StreamableFile } from '@nestjs/common';
import { Subject, of } from 'rxjs';
import { LockConfigError } from '../../../lib/core/errors.js';
import { rejectStream } from '../../../lib/decorators/reject-stream.js';
import { Locked } from '../../../lib/decorators/locked.decorator.js';
import { LeaderOnly } from '../../../lib/election/election.decorators.js';
import { until } from '../../support/until.js';

const refuse = (value: unknown) => () => rejectStream(value, '@Locked on Shop.export');

async function* rows() {
  yield 1;
}

function* lazy() {
  yield 1;
}

describe('a result that is read after the lock was released is refused:', () => {
  it.each<[string, () => unknown]>([
    ['an Observable', () => of(1)],
    ['a Subject', () => new Subject()],
    ['an Observable of another library', () => ({ subscribe() {}, '@@observable'() {} })],
    ['a Readable', () => Readable.from([1])],
    ['a Duplex', () => new PassThrough()],
    ['a StreamableFile of a stream', () => new StreamableFile(Readable.from(['x']))],
    ['a StreamableFile of a buffer', () => new StreamableFile(Buffer.from('x'))],
    ['a ReadableStream of the web', () => new ReadableStream()],
    ['a Response with an unread body', () => new Response('x')],
    ['a Response of a package', () => ({ bodyUsed: false, body: new PassThrough() })],
    ['an async generator', () => rows()],
    ['an async iterable', () => ({ [Symbol.asyncIterator]: rows })],
    ['a generator', () => lazy()],
  ])('%s', (_, make) => {
    expect(refuse(make())).toThrow(LockConfigError);
    expect(refuse(make())).toThrow(/@Locked on Shop\.export: expected a value that is complete/);
  });
});

describe('a refused result is closed:', () => {
  it('a stream of Node.js, also inside a StreamableFile', () => {
    const [bare, wrapped] = [new PassThrough(), new PassThrough()];
    expect(refuse(bare)).toThrow(LockConfigError);
    expect(refuse(new StreamableFile(wrapped))).toThrow(LockConfigError);
    expect([bare.destroyed, wrapped.destroyed]).toEqual([true, true]);
  });

  it('a file that cannot be opened, without an unhandled error', async () => {
    const file = createReadStream('/no/such/file');
    expect(refuse(file)).toThrow(LockConfigError);
    await until(() => file.closed);
  });

  it('a web stream', async () => {
    let isCancelled = false;
    const stream = new ReadableStream({ cancel: () => void (isCancelled = true) });
    expect(refuse(stream)).toThrow(LockConfigError);
    await until(() => isCancelled);
  });

  it('the body of a Response, of Node.js or of a package', async () => {
    let isCancelled = false;
    const body = new ReadableStream({ cancel: () => void (isCancelled = true) });
    expect(refuse(new Response(body as never))).toThrow(LockConfigError);
    await until(() => isCancelled);
    const stream = new PassThrough();
    expect(refuse({ bodyUsed: false, body: stream })).toThrow(LockConfigError);
    expect(stream.destroyed).toBe(true);
  });

  it('a web stream that has a reader already, without an unhandled rejection', () => {
    const stream = new ReadableStream();
    stream.getReader();
    expect(refuse(stream)).toThrow(LockConfigError);
  });

  it('an async generator that has begun', async () => {
    let hasEnded = false;
    async function* reading() {
      try {
        yield 1;
        yield 2;
      } finally {
        hasEnded = true;
      }
    }
    const values = reading();
    await values.next();
    expect(refuse(values)).toThrow(LockConfigError);
    await until(() => hasEnded);
  });
});

it('nothing is called on a value that looks like an Observable', () => {
  const called: string[] = [];
  const call = (name: string) => () => void called.push(name);
  const customer = { subscribe: call('subscribe'), cancel: call('cancel'), close: call('close') };
  expect(rejectStream(customer, 'place')).toBe(customer);
  expect(refuse({ ...customer, pipe: call('pipe') })).toThrow(LockConfigError);
  expect(called).toEqual([]);
});

/** An object of the application that has some methods of a stream or iterator. Each call would change it. */
function entityWith(names: readonly PropertyKey[], fields: object = {}) {
  const called: PropertyKey[] = [];
  const methods = [...names, 'cancel', 'destroy', 'return', 'close', 'on'];
  const entity: object = Object.assign(
    Object.fromEntries(methods.map((name) => [name, () => void called.push(name)])),
    fields,
  );
  return { entity, called };
}

it.each<[string, readonly PropertyKey[], object]>([
  ['getReader()', ['getReader'], {}],
  ['getReader() and tee()', ['getReader', 'tee'], { locked: false }],
  ['pipe() and a text that is called readable', ['pipe'], { readable: 'everybody' }],
  ['next() and an iterator of its own', ['next'], { [Symbol.iterator]: lazy }],
])('an object of the application with %s passes, and nothing of it is called', (_, names, fields) => {
  const { entity, called } = entityWith(names, fields);
  expect(rejectStream(entity, 'place')).toBe(entity);
  expect(called).toEqual([]);
});

it('an automatic mock, which has each method that it is asked for, passes', () => {
  const mock = new Proxy({}, { get: (_, name) => (name === 'then' ? undefined : () => undefined) });
  expect(rejectStream(mock, 'place')).toBe(mock);
});

it('nothing is called on an async iterable that is no iterator and no cursor', () => {
  const { entity, called } = entityWith([], { [Symbol.asyncIterator]: rows });
  expect(refuse(entity)).toThrow(/got an async iterable/);
  expect(called).toEqual([]);
});

it.each<[string, readonly string[], object]>([
  ['a cursor', ['next', 'close'], { [Symbol.asyncIterator]: rows }],
  ['a directory', ['read', 'close'], { [Symbol.asyncIterator]: rows }],
])('%s is closed', (_, names, fields) => {
  const called: string[] = [];
  const methods = Object.fromEntries(names.map((name) => [name, () => void called.push(name)]));
  expect(refuse(Object.assign(methods, fields))).toThrow(/got an async iterable/);
  expect(called).toEqual(['close']);
});

it('a relation next that is loaded when it is read is not read', () => {
  let isRead = false;
  const step = {
    get next() {
      isRead = true;
      return Promise.resolve();
    },
  };
  expect(rejectStream(step, 'place')).toBe(step);
  expect(isRead).toBe(false);
});

it('an object that throws for a property that it does not have passes', () => {
  const get = (_: object, name: PropertyKey) => {
    throw new Error(`unknown property ${String(name)}`);
  };
  const strict = new Proxy({}, { get });
  expect(rejectStream(strict, 'place')).toBe(strict);
});

it('an iterator without a generator is refused and ended', () => {
  const called: string[] = [];
  const iterator = {
    next: () => ({ done: true }),
    return: () => void called.push('return'),
    [Symbol.iterator]: () => iterator,
  };
  expect(refuse(iterator)).toThrow(/got an iterator/);
  expect(called).toEqual(['return']);
});

describe('a complete value passes unchanged:', () => {
  const response = new ServerResponse(new IncomingMessage(new Socket()));
  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['null', null],
    ['a text', 'text'],
    ['an array', [1]],
    ['a map', new Map()],
    ['a buffer', Buffer.from('x')],
    ['a function', rows],
    ['an object', { readable: true }],
    ['a stream that is only written to', new Writable()],
    ['the response of an HTTP server', response],
  ])('%s', (_, value) => {
    expect(rejectStream(value, 'place')).toBe(value);
  });
});

it('a Response that was read, or has no body, passes', async () => {
  const response = new Response('x');
  await response.text();
  expect(rejectStream(response, 'place')).toBe(response);
  const empty = new Response(null, { status: 204 });
  expect(rejectStream(empty, 'place')).toBe(empty);
});

it('a generator method is refused when the class is defined', () => {
  const defining =
    (decorate: (target: object, name: string, descriptor: PropertyDescriptor) => void) => () => {
      class Shop {
        async *rows() {
          yield 1;
        }
      }
      const { prototype } = Shop;
      decorate(prototype, 'rows', Object.getOwnPropertyDescriptor(prototype, 'rows')!);
    };
  expect(defining(Locked('rows') as never)).toThrow(/@Locked on Shop\.rows: .*got a generator/);
  expect(defining(LeaderOnly('boss') as never)).toThrow(/@LeaderOnly on Shop\.rows: .*got a generator/);
});
