import type { ConnectionOptions } from 'node:tls';
import { OptionErrors, unsetHint, unsetVariableHint } from '../../core/option-errors.js';
import { formatValue } from '../../core/format.js';
import type { HostAddress } from './wire/connection-types.js';
import { type ZookeeperAcl, collectAclErrors, resolveAcl } from './acl-options.js';
import type { AclEntry } from './wire/operations.js';

export interface ZookeeperBackendOptions {
  /**
   * The client addresses of the servers of one ensemble: `host:port`, several of them in an array or separated by commas. The backend
   * uses one at a time, and the next one when it fails.
   */
  servers: string | readonly string[];
  /**
   * After this time without a sign of life, ZooKeeper ends the session of a process, with all its locks: so long may a lock stay
   * whose process has died, whatever its lease. The longest lease is three quarters of it.
   *
   * @default 40_000
   */
  sessionTimeoutMs?: number;
  /**
   * The `tickTime` of the servers, or more. It bounds for how long a server may keep to itself that a process is alive.
   *
   * @default 2_000
   */
  tickTimeMs?: number;
  /** The user of ZooKeeper, in the scheme `digest`. Without `acl`, the nodes of the backend are for this user alone. */
  auth?: ZookeeperAuth;
  /** The access rights of the nodes that the backend creates. Those of existing nodes do not change. */
  acl?: readonly ZookeeperAcl[];
  /** TLS with the certificate authorities of Node.js, or with these options of `tls.connect()`. */
  tls?: boolean | ConnectionOptions;
  /**
   * The node under which the backend keeps everything. It is created if it is missing. It must be the same in all processes.
   *
   * @default '/nestjs-distributed-lock'
   */
  path?: string;
}

export interface ZookeeperAuth {
  user: string;
  password: string;
}

export interface ResolvedOptions {
  readonly hosts: readonly HostAddress[];
  readonly sessionTimeoutMs: number;
  readonly tickTimeMs: number;
  readonly digest: string | undefined;
  readonly acl: readonly AclEntry[];
  readonly tls: ConnectionOptions | undefined;
  readonly path: string;
}

export const DEFAULT_PATH = '/nestjs-distributed-lock';
const DEFAULT_SESSION_TIMEOUT_MS = 40_000;
const DEFAULT_TICK_TIME_MS = 2_000;
/** A lease of three quarters of the timeout leaves time for three heartbeats, and for one tick. */
const MIN_TICKS = 8;
const OPTIONS = ['servers', 'sessionTimeoutMs', 'tickTimeMs', 'auth', 'acl', 'tls', 'path'];
const SERVER = /^([\w.-]+|\[[\da-fA-F:.]+\]):(\d{1,5})$/;
const MAX_PORT = 65_535;
const PATH = /^(\/(?!\.{1,2}(\/|$))[\w.:@-]+)+$/;

/** @throws LockConfigError that lists all errors, without the values that may be secrets */
export function resolveZookeeperOptions(options: unknown): ResolvedOptions {
  const errors = new OptionErrors();
  const given = errors.object('options', options ?? null, OPTIONS);
  const hosts = collectServers(errors, given);
  errors.integerMs('options.tickTimeMs', given.tickTimeMs, { min: 1 });
  const tickTimeMs = typeof given.tickTimeMs === 'number' ? given.tickTimeMs : DEFAULT_TICK_TIME_MS;
  errors.integerMs('options.sessionTimeoutMs', given.sessionTimeoutMs, {
    min: MIN_TICKS * tickTimeMs,
  });
  const auth = errors.object('options.auth', given.auth, ['user', 'password']);
  if (given.auth !== undefined)
    for (const name of ['user', 'password']) collectAuthErrors(errors, auth, name);
  collectAclErrors(errors, given.acl);
  const { tls, path } = given;
  const isTls = typeof tls === 'boolean' || (typeof tls === 'object' && tls !== null);
  errors.expect('options.tls', tls, 'true, or options of tls.connect()', isTls);
  const isPath = typeof path === 'string' && PATH.test(path);
  errors.expect('options.path', path, "a path such as '/locks/production'", isPath);
  errors.throwIfAny('Wrong options of zookeeperBackend');
  return {
    ...{ hosts, tickTimeMs, acl: resolveAcl(given.acl as readonly ZookeeperAcl[] | undefined, given.auth) },
    sessionTimeoutMs: (given.sessionTimeoutMs as number | undefined) ?? DEFAULT_SESSION_TIMEOUT_MS,
    digest: given.auth === undefined ? undefined : `${auth.user as string}:${auth.password as string}`,
    tls: tls === true ? {} : tls === false ? undefined : (tls as ConnectionOptions | undefined),
    path: (path as string | undefined) ?? DEFAULT_PATH,
  };
}

function collectServers(errors: OptionErrors, given: Readonly<Record<string, unknown>>): HostAddress[] {
  const { servers } = given;
  const list: readonly unknown[] = typeof servers === 'string' ? servers.split(/, */) : [servers].flat();
  if (list.length === 0)
    errors.add('expected options.servers to name at least one server, got an empty array');
  return list.map((value, index) => {
    const [, host = '', port] = SERVER.exec(typeof value === 'string' ? value : '') ?? [];
    if (host === '' || Number(port) > MAX_PORT) {
      const path = Array.isArray(servers) ? `options.servers[${index}]` : 'options.servers';
      // An address may contain a password.
      const got = typeof value === 'string' ? 'another text' : formatValue(value);
      const hint =
        value === undefined ? unsetHint(given, 'servers', 'options.servers') || unsetVariableHint(path) : '';
      errors.add(`expected ${path} to be 'host:port', got ${got}${hint}`);
    }
    return { host: host.replace(/^\[|\]$/g, ''), port: Number(port) };
  });
}

function collectAuthErrors(
  errors: OptionErrors,
  auth: Readonly<Record<string, unknown>>,
  name: string,
): void {
  const value = auth[name];
  // The first colon separates the user from the password.
  const isValid = typeof value === 'string' && value !== '' && (name === 'password' || !value.includes(':'));
  if (isValid) return;
  const got =
    typeof value !== 'string' ? formatValue(value) : value === '' ? 'an empty text' : 'one with a colon';
  const hint = value === undefined ? unsetVariableHint(`options.auth.${name}`) : '';
  errors.add(`expected options.auth.${name} to be a text, got ${got}${hint}`);
}
