import { LockConfigError } from '../../../core/errors.js';
import {
  type UnknownResult,
  connectionLostResult,
  neverSentResult,
  unknownResult,
} from '../../../core/unknown-result.js';

/** The codes of replies that the backend distinguishes. */
export const CODE = {
  unimplemented: -6,
  noNode: -101,
  noAuth: -102,
  badVersion: -103,
  nodeExists: -110,
  notEmpty: -111,
  sessionExpired: -112,
  invalidAcl: -114,
  authFailed: -115,
} as const;

interface ErrorFacts {
  readonly hasNoEffect?: boolean;
  readonly isConnectionLost?: boolean;
  readonly code?: number;
}

/** A request failed. Its text is ours, and names no user. */
export class ZookeeperError extends Error {
  /** The request has no effect, now or later. */
  readonly hasNoEffect: boolean;
  readonly isConnectionLost: boolean;
  /** With a reply of the server: its code. */
  readonly code: number | undefined;

  constructor(message: string, { hasNoEffect = false, isConnectionLost = false, code }: ErrorFacts = {}) {
    super(message);
    this.name = 'ZookeeperError';
    this.hasNoEffect = hasNoEffect;
    this.isConnectionLost = isConnectionLost;
    this.code = code;
  }
}

/** ZooKeeper has ended the session of this process, with all its locks. */
export class SessionOverError extends ZookeeperError {
  constructor() {
    super('the session of this process has ended in ZooKeeper', {
      ...{ hasNoEffect: true, code: CODE.sessionExpired },
    });
  }
}

/** The error for a reply with a code. The server has refused the request, so it has no effect. */
export function refusalError(code: number, path: string): Error {
  switch (code) {
    case CODE.sessionExpired:
      return new SessionOverError();
    case CODE.noAuth:
      return new LockConfigError(
        `ZooKeeper denies access to "${path}": check options.auth, and the ACL of this node and its parents.`,
      );
    case CODE.authFailed:
      return new LockConfigError('ZooKeeper rejects the user or the password: check options.auth.');
    case CODE.invalidAcl:
      return new LockConfigError(
        'ZooKeeper rejects the ACL of the nodes: check options.acl and options.auth.',
      );
    case CODE.unimplemented:
      return new LockConfigError(
        'ZooKeeper does not know container nodes: version 3.6 or newer is needed on all servers.',
      );
    default:
      return new ZookeeperError(`ZooKeeper refuses the request with code ${code}`, {
        hasNoEffect: true,
        code,
      });
  }
}

export const codeOf = (error: unknown): number | undefined =>
  error instanceof ZookeeperError ? error.code : undefined;

/** `networkCode`: that of the network, if the connection could not be opened. */
export const notConnectedError = (host: string, networkCode?: string) =>
  new ZookeeperError(
    `ZooKeeper cannot be reached at ${host}${networkCode === undefined ? '' : ` (${networkCode})`}`,
    { hasNoEffect: true, isConnectionLost: true },
  );

export const connectionLostError = (host: string) =>
  new ZookeeperError(`the connection to ZooKeeper at ${host} was lost before a reply arrived`, {
    isConnectionLost: true,
  });

export const noSessionError = (host: string) =>
  new ZookeeperError(`ZooKeeper at ${host} opens no session`, { hasNoEffect: true, isConnectionLost: true });

export const closedError = () => new ZookeeperError('the backend was closed', { hasNoEffect: true });

export const unconfirmedError = () =>
  new ZookeeperError('the backend was closed before ZooKeeper confirmed the session');

export const usedUpError = (bucket: string) =>
  new ZookeeperError(
    `the numbers of the bucket ${bucket} are used up: it starts anew when all locks in it have ended and ZooKeeper has removed it`,
    { hasNoEffect: true },
  );

export const shortSessionError = (expectedMs: number, timeoutMs: number) =>
  new LockConfigError(
    `ZooKeeper ends sessions after at most ${timeoutMs} ms, but options.sessionTimeoutMs is ${expectedMs}. Lower it and the ` +
      `leases, or raise maxSessionTimeout of the servers.`,
  );

/** Resolves to `undefined` if the server replies with one of these codes. */
export async function unlessCode<T>(reply: Promise<T>, ...codes: readonly number[]): Promise<T | undefined> {
  try {
    return await reply;
  } catch (error) {
    const code = codeOf(error);
    if (code !== undefined && codes.includes(code)) return undefined;
    throw error;
  }
}

export const hasNoEffect = (cause: unknown): boolean =>
  cause instanceof LockConfigError || (cause instanceof ZookeeperError && cause.hasNoEffect);

/** The result of a request that ended with this error. */
export const resultOfError = (cause: unknown): UnknownResult =>
  hasNoEffect(cause) ? neverSentResult(cause) : resultAfterCreation(cause);

/**
 * The result of a request that has created its entry, and then ended with this error. The entry is there also if what
 * followed was never sent.
 *
 * @throws SessionOverError if that is the error: the entry has ended
 */
export function resultAfterCreation(cause: unknown): UnknownResult {
  if (cause instanceof SessionOverError) throw cause;
  return cause instanceof ZookeeperError && cause.isConnectionLost
    ? connectionLostResult(cause)
    : unknownResult(cause);
}
