import { type ServiceError, status } from '@grpc/grpc-js';
import { LockConfigError } from '../../../core/errors.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout.js';
import {
  type UnknownResult,
  connectionLostResult,
  neverSentResult,
  unknownResult,
} from '../../../core/unknown-result.js';

/** A request failed. Its text is ours: those of etcd and of gRPC may name a user. */
export class EtcdError extends Error {
  /** The request has no effect, now or later. */
  readonly hasNoEffect: boolean;
  /** The request has no effect later: it has taken effect already, or never will. */
  readonly isDecided: boolean;
  readonly isConnectionLost: boolean;

  constructor(message: string, { hasNoEffect = false, isDecided = false, isConnectionLost = false } = {}) {
    super(message);
    this.name = 'EtcdError';
    this.hasNoEffect = hasNoEffect;
    this.isDecided = hasNoEffect || isDecided;
    this.isConnectionLost = isConnectionLost;
  }
}

const NOSPACE =
  'etcd has used up its space quota and accepts no writes: compact and defragment it, then disarm the NOSPACE alarm';

/** etcd and gRPC refuse a request with these texts before they look at it. The client has its own limit for requests. */
const REFUSED =
  /^(etcdserver: too many requests|grpc: (received )?message (after decompression )?larger than max|Attempted to send)/;

/** gRPC ends a call with these texts if it never had a connection for it. */
export const CHANNEL_CLOSED = 'Channel closed before call started';
const NEVER_SENT = /^(No connection established|Name resolution failed|Channel closed before call started)/;

/** The HTTP status of an answer that is none of etcd's, but of a proxy. gRPC maps it to codes that etcd uses too. */
export const httpStatusOf = ({ details }: ServiceError): string | undefined =>
  /^Received HTTP status code (\d+)/.exec(details)?.[1];

/** Whether the call never left this process. */
export const wasNeverSent = ({ details }: ServiceError): boolean => NEVER_SENT.test(details);

/**
 * Whether etcd refused the call because of its token. A token ends with the member that gave it, after some minutes, or when a
 * user or role changes. Without one, authentication was not enabled when it was asked for.
 */
export const mustAuthenticateAgain = (error: ServiceError): boolean =>
  httpStatusOf(error) === undefined &&
  (error.code === status.UNAUTHENTICATED ||
    /revision of auth store is old|user name is empty/.test(error.details));

export interface FailedCall {
  readonly error: ServiceError;
  readonly timeoutMs: number;
  readonly host: string;
  readonly keyPrefix: string;
}

/** A readable error for a call that failed. */
export function toReadableError({ error, timeoutMs, host, keyPrefix }: FailedCall): Error {
  const { code, details } = error;
  const httpStatus = httpStatusOf(error);
  if (httpStatus !== undefined) {
    const message = `${host} answers with HTTP status ${httpStatus}, as etcd does not: check options.hosts and the proxies before it`;
    return new EtcdError(message, { isConnectionLost: true });
  }
  switch (code) {
    case status.DEADLINE_EXCEEDED:
      return new StoreTimeoutError(timeoutMs);
    case status.UNAUTHENTICATED:
      // The user and the password were right a moment ago. The next request asks for another token.
      return new EtcdError('etcd rejects the token of the user', { hasNoEffect: true });
    case status.PERMISSION_DENIED:
      return new LockConfigError(
        `etcd denies access to the keys that start with "${keyPrefix}": grant the user a role with readwrite permission ` +
          `for this prefix.`,
      );
    case status.RESOURCE_EXHAUSTED:
      return exhaustedError(details);
    case status.INVALID_ARGUMENT:
    case status.FAILED_PRECONDITION:
      return invalidRequestError(details);
    case status.NOT_FOUND:
      return new EtcdError('etcd no longer has the lease', { hasNoEffect: true });
    default:
      return unavailableError(details, host);
  }
}

/**
 * etcd checks its space before and after a request takes effect, and replies the same to both. Others, such as a proxy, may end a
 * request that is on its way.
 *
 * @see https://github.com/etcd-io/etcd/blob/main/server/etcdserver/apply/quota.go
 */
function exhaustedError(details: string): Error {
  if (/database space exceeded/.test(details)) return new EtcdError(NOSPACE, { isDecided: true });
  return new EtcdError('etcd is overloaded, or a message is too large', {
    hasNoEffect: REFUSED.test(details),
  });
}

function invalidRequestError(details: string): Error {
  if (/authentication failed|user name/.test(details)) {
    return new LockConfigError(
      'etcd rejects the user or the password, or requires them: check options.auth.',
    );
  }
  return new EtcdError('etcd rejects the request as invalid', { hasNoEffect: true });
}

function unavailableError(details: string, host: string): Error {
  if (/no leader/.test(details)) return new EtcdError(`the etcd cluster has no leader, says ${host}`);
  if (/timed out/.test(details)) return new EtcdError(`the etcd cluster did not agree in time, says ${host}`);
  if (NEVER_SENT.test(details)) {
    const facts = { hasNoEffect: true, isConnectionLost: true };
    return new EtcdError(`etcd cannot be reached at ${host}${connectFailure(details)}`, facts);
  }
  const message = `etcd cannot be reached at ${host}, or the connection was lost before a reply arrived`;
  return new EtcdError(message, { isConnectionLost: true });
}

/** The code of the network for a connection that was not opened. */
function connectFailure(details: string): string {
  const code = /^Name resolution/.test(details) ? 'ENOTFOUND' : /\bE[A-Z]{4,}\b/.exec(details)?.[0];
  return code === undefined ? '' : ` (${code})`;
}

/** The result of a request that ended with this error. */
export function resultOfError(cause: unknown): UnknownResult {
  if (hasNoEffect(cause)) return neverSentResult(cause);
  return cause instanceof EtcdError && cause.isConnectionLost
    ? connectionLostResult(cause)
    : unknownResult(cause);
}

export const hasNoEffect = (cause: unknown): boolean =>
  cause instanceof LockConfigError || (cause instanceof EtcdError && cause.hasNoEffect);

/** Whether the request cannot take effect later, whatever its effect is. */
export const isDecided = (cause: unknown): boolean =>
  cause instanceof LockConfigError || (cause instanceof EtcdError && cause.isDecided);
