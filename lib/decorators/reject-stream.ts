import { StreamableFile } from '@nestjs/common';
import { LockConfigError } from '../core/errors.js';

/**
 * Refuses a result that is produced after the method has returned, and so after the lock was released: an Observable, a
 * `StreamableFile`, a Node.js or web stream, a `Response` with an unread body, an iterator or any other async iterable. Closes
 * what the result has opened.
 *
 * @throws LockConfigError
 */
export function rejectStream<T>(value: T, location: string | (() => string)): T {
  const kind = streamKind(value);
  if (kind === undefined) return value;
  close(contentOf(value));
  throw new LockConfigError(
    `${typeof location === 'string' ? location : location()}: expected a value that is complete when the work returns, got ${kind.name}, which would be read after the lock ` +
      `was released. Read it completely under the lock and return the data (lastValueFrom() of rxjs does so with an Observable), ` +
      `or return it from a method without a lock.`,
  );
}

/** What is read after the method has returned, and which of its methods closes it: the first that it has. */
interface StreamKind {
  readonly name: string;
  readonly closedBy: readonly string[];
}

/** What an Observable of RxJS or another library has besides subscribe(). The user's own classes may have subscribe() alone. */
const observableMethods = () => ['pipe', Symbol.observable, '@@observable'] as const;

type Fields = Readonly<Record<PropertyKey, unknown>>;

/** The kind of stream that the value is. An object whose properties cannot be read is none. */
function streamKind(value: unknown): StreamKind | undefined {
  try {
    return typeof value === 'object' && value !== null ? streamKindOf(value) : undefined;
  } catch {
    return undefined;
  }
}

/** An object of the application may have some of these methods too. It must not be refused, nor closed. */
function streamKindOf(value: object): StreamKind | undefined {
  const has = (name: PropertyKey) => typeof (value as Fields)[name] === 'function';
  // The automatic mock of a test has each method that it is asked for.
  if (has('nestjs-distributed-lock:no-such-method')) return undefined;
  if (value instanceof StreamableFile) return { name: 'a StreamableFile', closedBy: [] };
  // Without a subscriber, it has opened nothing.
  if (has('subscribe') && observableMethods().some(has)) return { name: 'an Observable', closedBy: [] };
  // A Writable, such as the response of Express, also has pipe().
  if (has('pipe') && has('on') && 'readable' in value && typeof value.readable === 'boolean')
    return { name: 'a Readable stream', closedBy: ['destroy'] };
  if (['getReader', 'pipeTo', 'tee', 'cancel'].every(has) && 'locked' in value)
    return { name: 'a ReadableStream', closedBy: ['cancel'] };
  if (isUnreadResponse(value)) return { name: 'a Response with an unread body', closedBy: [] };
  if (has(Symbol.asyncIterator)) {
    // An iterator, or the cursor of a database or a directory.
    return { name: 'an async iterable', closedBy: has('next') || has('read') ? ['return', 'close'] : [] };
  }
  return isIterator(value as Fields) ? { name: 'an iterator', closedBy: ['return'] } : undefined;
}

/**
 * An iterator returns itself. A collection returns another object, although it may have next(). On an entity, next may be a
 * relation that is loaded when it is read, so it is read last.
 */
function isIterator(value: Fields): boolean {
  const iterate = value[Symbol.iterator];
  return typeof iterate === 'function' && typeof value.next === 'function' && iterate.call(value) === value;
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
  const closeMethod = streamKind(stream)?.closedBy.find((name) => typeof fields[name] === 'function');
  if (closeMethod === undefined) return;
  // Nothing else listens for errors: a file that cannot be opened must not end the process.
  if (typeof fields.on === 'function') fields.on('error', () => undefined);
  // Not awaited, because it may never settle. Its failure does not matter: the caller gets an error anyway.
  void new Promise((resolve) => {
    resolve((fields[closeMethod] as () => unknown)());
  }).catch(() => undefined);
}
