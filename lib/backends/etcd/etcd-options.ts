import { ChannelCredentials } from '@grpc/grpc-js';
import { OptionErrors, unsetHint, unsetVariableHint } from '../../core/option-errors.js';
import { formatValue } from '../../core/format.js';
import type { ConnectionParts } from './rpc/etcd-connection.js';

export interface EtcdBackendOptions {
  /**
   * The client addresses of the members of one cluster: `host:port`, or `http://host:port`, or `https://host:port` for
   * TLS with the certificate authorities of Node.js. The backend uses one at a time, and the next one when it fails.
   */
  hosts: string | readonly string[];
  /**
   * How to connect, from `@grpc/grpc-js`: `credentials.createSsl(ca, key, certificate)` for TLS with your own
   * certificates.
   *
   * @default `credentials.createInsecure()`, or TLS if the hosts start with `https://`
   */
  credentials?: ChannelCredentials;
  /** The user of etcd. Its role needs read and write permission on all keys that start with `keyPrefix`. */
  auth?: EtcdAuth;
  /**
   * The beginning of all keys of the backend in etcd. Without `auth`, there is rarely a reason to change it. It must be
   * the same in all processes.
   *
   * @default 'nestjs-distributed-lock/'
   */
  keyPrefix?: string;
}

export interface EtcdAuth {
  user: string;
  password: string;
}

export const DEFAULT_KEY_PREFIX = 'nestjs-distributed-lock/';

const HOST = /^(?:(https?):\/\/)?((?:[\w.-]+|\[[\da-fA-F:.]+\]):(\d{1,5}))\/?$/;
const MAX_PORT = 65_535;
const MAX_TEXT = 255;

/** @throws LockConfigError that lists all errors, without the values that may be secrets */
export function resolveEtcdOptions(options: unknown): ConnectionParts {
  const errors = new OptionErrors();
  const known = ['hosts', 'credentials', 'auth', 'keyPrefix'];
  const given = errors.object('options', options ?? null, known);
  const schemes = collectHosts(errors, given);
  const isSecure = given.credentials !== undefined || schemes.every(({ scheme }) => scheme === 'https');
  if (!isSecure && schemes.some(({ scheme }) => scheme === 'https'))
    errors.add('expected all of options.hosts to start with https://, or none');
  const isCredentials = typeof (Object(given.credentials) as { compose?: unknown }).compose === 'function';
  if (given.credentials !== undefined && !isCredentials) {
    // A text may be a password.
    const expected = 'ChannelCredentials of @grpc/grpc-js, such as credentials.createSsl(…)';
    errors.add(`expected options.credentials to be ${expected}, got ${formatKind(given.credentials)}`);
  }
  const auth = errors.object('options.auth', given.auth, ['user', 'password']);
  if (given.auth !== undefined)
    for (const name of ['user', 'password']) collectAuthErrors(errors, auth, name);
  errors.text('options.keyPrefix', given.keyPrefix, { max: MAX_TEXT });
  errors.throwIfAny('Wrong options of etcdBackend');
  return {
    hosts: schemes.map(({ host }) => host),
    credentials:
      (given.credentials as ChannelCredentials | undefined) ??
      (isSecure ? ChannelCredentials.createSsl() : ChannelCredentials.createInsecure()),
    auth: given.auth as EtcdAuth | undefined,
    keyPrefix: (given.keyPrefix as string | undefined) ?? DEFAULT_KEY_PREFIX,
  };
}

const formatKind = (value: unknown) => (typeof value === 'string' ? 'a text' : formatValue(value));

interface Host {
  readonly scheme: string | undefined;
  readonly host: string;
}

function collectHosts(errors: OptionErrors, given: Readonly<Record<string, unknown>>): readonly Host[] {
  const hosts: readonly unknown[] = Array.isArray(given.hosts) ? given.hosts : [given.hosts];
  if (hosts.length === 0) errors.add('expected options.hosts to name at least one host, got an empty array');
  return hosts.map((value, index) => {
    const [, scheme, host = '', port] = HOST.exec(typeof value === 'string' ? value : '') ?? [];
    const path = Array.isArray(given.hosts) ? `options.hosts[${index}]` : 'options.hosts';
    if (host === '' || Number(port) > MAX_PORT) {
      // An address may contain a password.
      const got = typeof value === 'string' ? 'another text' : formatValue(value);
      const hint =
        value === undefined ? unsetHint(given, 'hosts', 'options.hosts') || unsetVariableHint(path) : '';
      errors.add(`expected ${path} to be 'host:port', got ${got}${hint}`);
    }
    return { scheme, host };
  });
}

function collectAuthErrors(
  errors: OptionErrors,
  auth: Readonly<Record<string, unknown>>,
  name: string,
): void {
  const value = auth[name];
  if (typeof value === 'string' && value !== '') return;
  const got = typeof value === 'string' ? 'an empty text' : formatValue(value);
  errors.add(
    `expected options.auth.${name} to be a text, got ${got}` +
      (value === undefined ? unsetVariableHint(`options.auth.${name}`) : ''),
  );
}
