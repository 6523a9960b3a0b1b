import { Metadata, type ServiceError, status } from '@grpc/grpc-js';
import { expect, it } from 'vitest';
import {
  hasNoEffect,
  isDecided,
  resultOfError,
  toReadableError,
} from '../../../../lib/backends/etcd/rpc/etcd-errors.js';

const errorOf = (code: status, details: string) => {
  const error: ServiceError = Object.assign(new Error(), { code, details, metadata: new Metadata() });
  return toReadableError({ error, timeoutMs: 1_000, host: 'etcd:2379', keyPrefix: 'locks/' });
};

const exhausted = (details: string) => errorOf(status.RESOURCE_EXHAUSTED, details);

it.each([
  'etcdserver: too many requests',
  'grpc: received message larger than max (2097153 vs. 2097152)',
  'grpc: received message after decompression larger than max 2097152',
  'grpc: message after decompression larger than max (2097153 vs. 2097152)',
  'Attempted to send message with a size larger than 2097152',
])('a request that was refused before it began has no effect (%s)', (details) => {
  const error = exhausted(details);
  expect(hasNoEffect(error)).toBe(true);
  expect(resultOfError(error)).toMatchObject({ kind: 'unknown', wasSent: false });
});

it.each([
  // The reply is too large.
  'Received message larger than max (4194305 vs 4194304)',
  'Received message that decompresses to a size larger than 4194304',
  'trying to send message larger than max (2147483648 vs. 2147483647)',
  // The stream was reset.
  'Bandwidth exhausted or memory limit exceeded',
  // A proxy may say anything.
  'too many requests',
])('a request that may have begun may take effect, also later (%s)', (details) => {
  const error = exhausted(details);
  expect(hasNoEffect(error)).toBe(false);
  expect(isDecided(error)).toBe(false);
  expect(resultOfError(error)).not.toHaveProperty('wasSent');
});

it('a request for which etcd has no space may have taken effect, but does not do so later', () => {
  const error = exhausted('etcdserver: mvcc: database space exceeded');
  expect(error.message).toContain('space quota');
  expect(hasNoEffect(error)).toBe(false);
  expect(isDecided(error)).toBe(true);
  expect(resultOfError(error)).not.toHaveProperty('wasSent');
});

it.each([
  [status.PERMISSION_DENIED, 'etcdserver: permission denied'],
  [status.INVALID_ARGUMENT, 'etcdserver: request is too large'],
  [status.NOT_FOUND, 'etcdserver: requested lease not found'],
])('a request that etcd rejects has no effect (%s)', (code, details) => {
  const error = errorOf(code, details);
  expect([hasNoEffect(error), isDecided(error)]).toEqual([true, true]);
});

it.each([
  [status.DEADLINE_EXCEEDED, ''],
  [status.UNAVAILABLE, 'Connection dropped'],
  [status.UNAVAILABLE, 'etcdserver: request timed out'],
])('a request without a reply may take effect later (%s %s)', (code, details) => {
  const error = errorOf(code, details);
  expect([hasNoEffect(error), isDecided(error)]).toEqual([false, false]);
});

it.each([
  [status.UNAUTHENTICATED, 401],
  [status.PERMISSION_DENIED, 403],
  [status.UNIMPLEMENTED, 404],
  [status.UNKNOWN, 500],
])('a request that a proxy has answered may take effect later (%s, HTTP %i)', (code, httpStatus) => {
  const error = errorOf(code, `Received HTTP status code ${httpStatus}`);
  expect([hasNoEffect(error), isDecided(error)]).toEqual([false, false]);
  expect(error.message).toContain(`etcd:2379 answers with HTTP status ${httpStatus}`);
});
