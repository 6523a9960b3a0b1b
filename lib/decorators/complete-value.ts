import { StreamableFile } from '@nestjs/common';
import { LockConfigError } from '../core/errors.js';

/**
 * Refuses a result that is produced after the method has returned, and so after the lock was released: an Observable, a
 * `StreamableFile`, a stream of Node.js or the web, a `Response` with an unread body, an iterator or any other async iterable.
 * What it has opened is closed.
 *
 * @throws LockConfigError
 */
export function requireCompleteValue<T>(value: T, location: string): T {
  const kind = streamKind(value);
  if (kind === undefined) return value;
  // An Observable that nobody has subscribed to has opened nothing.
  if (kind !== OBSERVABLE) close(contentOf(value));
  throw new LockConfigError(
    `${location}: expected a value that is complete when the method returns, got ${kind}, which would be read after the lock ` +
      `was released. Read it to its end inside the method and return what came, or let a method without a lock return it.`,
  );
}

const OBSERVABLE = 'an Observable';

/** Ways to end what may have been opened already. */
const CLOSE_METHODS = ['destroy', 'cancel', 'return', 'close'] as const;

/** What an Observable has besides subscribe(), of RxJS or of another library. An object of yours may have subscribe() alone. */
const observableMethods = () => ['pipe', Symbol.observable, '@@observable'] as const;

type Fields = Readonly<Record<PropertyKey, unknown>>;

function streamKind(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const has = (name: PropertyKey) => typeof (value as Fields)[name] === 'function';
  if (value instanceof StreamableFile) return 'a StreamableFile';
  if (has('subscribe') && observableMethods().some(has)) return OBSERVABLE;
  // What Node.js only writes to, such as the response of Express, has pipe() too.
  if (has('pipe') && 'readable' in value) return 'a Readable stream';
  if (has('getReader')) return 'a ReadableStream';
  if (isUnreadResponse(value)) return 'a Response with an unread body';
  if (has(Symbol.asyncIterator)) return 'an async iterable';
  if (has(Symbol.iterator) && has('next')) return 'an iterator';
  return undefined;
}

/** What fetch() answers, of Node.js or of a package. One without a body, or that was read, is complete. */
const isUnreadResponse = (value: object): value is { readonly body: unknown } =>
  'bodyUsed' in value &&
  value.bodyUsed === false &&
  'body' in value &&
  value !== value.body &&
  streamKind(value.body) !== undefined;

function contentOf(value: unknown): unknown {
  if (value instanceof StreamableFile) return value.getStream();
  return typeof value === 'object' && value !== null && isUnreadResponse(value) ? value.body : value;
}

function close(stream: unknown): void {
  const fields = stream as Fields & { on?: (event: 'error', listener: () => void) => unknown };
  // Nobody else listens: a file that cannot be opened must not end the process.
  if (typeof fields.on === 'function') fields.on('error', () => undefined);
  const closeMethod = CLOSE_METHODS.find((name) => typeof fields[name] === 'function');
  if (closeMethod === undefined) return;
  // Not awaited, as it may never settle; and how it goes is no news to a caller who gets an error anyway.
  void new Promise((resolve) => {
    resolve((fields[closeMethod] as () => unknown)());
  }).catch(() => undefined);
}
