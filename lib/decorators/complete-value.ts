import { StreamableFile } from '@nestjs/common';
import { LockConfigError } from '../core/errors.js';

/**
 * Refuses a result that is produced after the method has returned, and so after the lock was released: an Observable, a
 * `StreamableFile`, a Node.js or web stream, a `Response` with an unread body, an iterator or any other async iterable. Closes
 * what the result has opened.
 *
 * @throws LockConfigError
 */
export function requireCompleteValue<T>(value: T, location: string): T {
  const kind = streamKind(value);
  if (kind === undefined) return value;
  // An Observable without a subscriber has opened nothing.
  if (kind !== OBSERVABLE) close(contentOf(value));
  throw new LockConfigError(
    `${location}: expected a value that is complete when the method returns, got ${kind}, which would be read after the lock ` +
      `was released. Read it completely inside the method and return the data, or return it from a method without a lock.`,
  );
}

const OBSERVABLE = 'an Observable';

/** Methods that close a stream or iterator which may have opened something already. */
const CLOSE_METHODS = ['destroy', 'cancel', 'return', 'close'] as const;

/** What an Observable of RxJS or another library has besides subscribe(). The user's own classes may have subscribe() alone. */
const observableMethods = () => ['pipe', Symbol.observable, '@@observable'] as const;

type Fields = Readonly<Record<PropertyKey, unknown>>;

function streamKind(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const has = (name: PropertyKey) => typeof (value as Fields)[name] === 'function';
  if (value instanceof StreamableFile) return 'a StreamableFile';
  if (has('subscribe') && observableMethods().some(has)) return OBSERVABLE;
  // A Writable, such as the response of Express, also has pipe().
  if (has('pipe') && 'readable' in value) return 'a Readable stream';
  if (has('getReader')) return 'a ReadableStream';
  if (isUnreadResponse(value)) return 'a Response with an unread body';
  if (has(Symbol.asyncIterator)) return 'an async iterable';
  if (has(Symbol.iterator) && has('next')) return 'an iterator';
  return undefined;
}

/** A `Response` of `fetch()`, of Node.js or of a package. Without a body, or with a body that was read, it is complete. */
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
  // Nothing else listens for errors: a file that cannot be opened must not end the process.
  if (typeof fields.on === 'function') fields.on('error', () => undefined);
  const closeMethod = CLOSE_METHODS.find((name) => typeof fields[name] === 'function');
  if (closeMethod === undefined) return;
  // Not awaited, because it may never settle. Its failure does not matter: the caller gets an error anyway.
  void new Promise((resolve) => {
    resolve((fields[closeMethod] as () => unknown)());
  }).catch(() => undefined);
}
