import {
  type CallOptions,
  type ChannelCredentials,
  Client,
  type ClientDuplexStream,
  Metadata,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import type { MethodDefinition } from '@grpc/proto-loader';
import { systemClock } from '../../../core/clock.js';
import { definitions } from './descriptors.js';
import { CHANNEL_CLOSED, toReadableError, wasNeverSent } from './etcd-errors.js';
import type { StreamMethods, UnaryMethods } from './messages.js';

export interface ConnectionParts {
  /** `host:port`. */
  readonly hosts: readonly string[];
  readonly credentials: ChannelCredentials;
  readonly auth: { readonly user: string; readonly password: string } | undefined;
  /** For messages. */
  readonly keyPrefix: string;
}

/** A host that has not replied to anything for this long is left when a call times out. */
const MAX_SILENCE_MS = 300;

const CHANNEL_OPTIONS = {
  // A repeated acquisition is the core's decision.
  'grpc.enable_retries': 0,
  'grpc.use_local_subchannel_pool': 1,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1_000,
  // etcd accepts a ping each 5 s.
  'grpc.keepalive_time_ms': 10_000,
  'grpc.keepalive_timeout_ms': 3_000,
};

/** A channel to one host. */
interface HostChannel {
  readonly client: Client;
  readonly host: string;
  openCalls: number;
  /** Since then no reply has arrived, although calls are open. */
  silentSinceMs: number;
}

/**
 * The connection to one member of the cluster at a time. When the member cannot be reached, does not answer or has no leader,
 * the next call goes to the next host. Opened by the first call, and again by a call after `close`.
 */
export class EtcdConnection {
  readonly #parts: ConnectionParts;
  readonly #onLeave = new Set<() => void>();
  #hostIndex = 0;
  #channel: HostChannel | undefined;
  #token: Promise<string | undefined> | undefined;

  constructor(parts: ConnectionParts) {
    this.#parts = parts;
  }

  /** @throws LockConfigError, StoreTimeoutError or EtcdError */
  async call<Name extends keyof UnaryMethods>(
    name: Name,
    request: UnaryMethods[Name][0],
    timeoutMs: number,
  ): Promise<UnaryMethods[Name][1]> {
    const endsAtMs = systemClock.monotonicMs() + timeoutMs;
    for (let triesLeft = this.#parts.hosts.length; ; triesLeft -= 1) {
      const channel = this.#open();
      try {
        const token = await this.#authenticate(channel, endsAtMs);
        return await send(channel, { name, request, token, endsAtMs });
      } catch (cause) {
        const error = cause as ServiceError;
        this.#onError(error, channel);
        const hasTime = systemClock.monotonicMs() < endsAtMs;
        if (triesLeft > 0 && hasTime && this.#mayResend(error)) continue;
        throw this.#toReadable(error, channel.host, timeoutMs);
      }
    }
  }

  /** Opens a stream. It ends with an error if the member has no leader. */
  async openStream<Name extends keyof StreamMethods>(
    name: Name,
    timeoutMs: number,
  ): Promise<ClientDuplexStream<StreamMethods[Name][0], StreamMethods[Name][1]>> {
    const channel = this.#open();
    const token = await this.#authenticateReadably(channel, timeoutMs);
    const { path, requestSerialize, responseDeserialize } = methodOf<StreamMethods[Name]>(name);
    if (channel !== this.#channel) throw this.#toReadable(channelClosedError(), channel.host, timeoutMs);
    return channel.client.makeBidiStreamRequest(
      path,
      requestSerialize,
      responseDeserialize,
      metadataOf(token),
    );
  }

  /** Sends one message over a stream of its own, and resolves to the first reply. */
  async exchange<Name extends keyof StreamMethods>(
    name: Name,
    request: StreamMethods[Name][0],
    timeoutMs: number,
  ): Promise<StreamMethods[Name][1]> {
    const channel = this.#open();
    const token = await this.#authenticateReadably(channel, timeoutMs);
    const { path, requestSerialize, responseDeserialize } = methodOf<StreamMethods[Name]>(name);
    const options = { deadline: systemClock.wallMs() + timeoutMs };
    const metadata = metadataOf(token);
    const { client } = channel;
    if (channel !== this.#channel) throw this.#toReadable(channelClosedError(), channel.host, timeoutMs);
    const stream = client.makeBidiStreamRequest(
      path,
      requestSerialize,
      responseDeserialize,
      metadata,
      options,
    );
    onCall(channel);
    try {
      return await new Promise((resolve, reject) => {
        stream.once('data', (reply: StreamMethods[Name][1]) => {
          onReply(channel);
          resolve(reply);
        });
        stream.once('error', reject);
        stream.once('end', () =>
          reject(Object.assign(new Error(), { code: status.UNAVAILABLE, details: '' })),
        );
        stream.write(request);
      });
    } catch (cause) {
      const error = cause as ServiceError;
      this.#onError(error, channel);
      throw this.#toReadable(error, channel.host, timeoutMs);
    } finally {
      channel.openCalls -= 1;
      stream.on('error', () => undefined);
      stream.cancel();
    }
  }

  /** Calls back when another host takes the place of the present one. */
  onLeave(listener: () => void): void {
    this.#onLeave.add(listener);
  }

  close(): void {
    if (this.#channel) this.#leave(this.#channel);
  }

  #open(): HostChannel {
    const { hosts, credentials } = this.#parts;
    const host = hosts[this.#hostIndex % hosts.length] ?? '';
    return (this.#channel ??= {
      client: new Client(host, credentials, CHANNEL_OPTIONS),
      host,
      ...{ openCalls: 0, silentSinceMs: 0 },
    });
  }

  #onError(error: ServiceError, channel: HostChannel): void {
    // A token ends with the member that gave it, or after some minutes.
    if (error.code === status.UNAUTHENTICATED) this.#token = undefined;
    if (isFaultOfHost(error, channel)) this.#leave(channel);
  }

  /** A call that was refused or has never left this process can be sent again, to the next host. */
  #mayResend(error: ServiceError): boolean {
    return wasNeverSent(error) || (error.code === status.UNAUTHENTICATED && this.#parts.auth !== undefined);
  }

  #leave(channel: HostChannel): void {
    if (this.#channel !== channel) return;
    this.#channel = undefined;
    this.#token = undefined;
    this.#hostIndex += 1;
    channel.client.close();
    for (const listener of this.#onLeave) listener();
  }

  async #authenticateReadably(channel: HostChannel, timeoutMs: number): Promise<string | undefined> {
    try {
      return await this.#authenticate(channel, systemClock.monotonicMs() + timeoutMs);
    } catch (cause) {
      throw this.#toReadable(cause as ServiceError, channel.host, timeoutMs);
    }
  }

  #authenticate(channel: HostChannel, endsAtMs: number): Promise<string | undefined> {
    const { auth } = this.#parts;
    if (!auth) return NO_TOKEN;
    if (this.#token) return this.#token;
    const request = { name: auth.user, password: auth.password };
    const token = send(channel, { name: 'Auth.Authenticate', request, token: undefined, endsAtMs }).then(
      (reply) => reply.token,
      (error: unknown) => {
        if (/not enabled/.test((error as ServiceError).details)) return undefined;
        throw error;
      },
    );
    this.#token = token;
    token.catch(() => {
      if (this.#token === token) this.#token = undefined;
    });
    return token;
  }

  #toReadable(error: ServiceError, host: string, timeoutMs: number): Error {
    return toReadableError({ error, timeoutMs, host, keyPrefix: this.#parts.keyPrefix });
  }
}

const NO_TOKEN = Promise.resolve(undefined);

interface UnaryCall<Name extends keyof UnaryMethods> {
  readonly name: Name;
  readonly request: UnaryMethods[Name][0];
  readonly token: string | undefined;
  readonly endsAtMs: number;
}

/** Rejects with a `ServiceError`. */
function send<Name extends keyof UnaryMethods>(
  channel: HostChannel,
  { name, request, token, endsAtMs }: UnaryCall<Name>,
): Promise<UnaryMethods[Name][1]> {
  const { path, requestSerialize, responseDeserialize } = methodOf<UnaryMethods[Name]>(name);
  const leftMs = Math.max(endsAtMs - systemClock.monotonicMs(), 0);
  const options: CallOptions = { deadline: systemClock.wallMs() + leftMs };
  return new Promise((resolve, reject) => {
    const onReplied = (error: ServiceError | null, reply?: UnaryMethods[Name][1]): void => {
      channel.openCalls -= 1;
      if (error?.code !== status.DEADLINE_EXCEEDED) onReply(channel);
      if (error) reject(error);
      else resolve(reply as UnaryMethods[Name][1]);
    };
    onCall(channel);
    try {
      const codec = [path, requestSerialize, responseDeserialize] as const;
      channel.client.makeUnaryRequest(...codec, request, metadataOf(token), options, onReplied);
    } catch {
      onReplied(channelClosedError());
    }
  });
}

/** The channel was left while the call was prepared. */
const channelClosedError = () =>
  Object.assign(new Error(), { code: status.UNAVAILABLE, details: CHANNEL_CLOSED, metadata: new Metadata() });

/** A member without a leader answers at once instead of waiting for one. */
function metadataOf(token: string | undefined): Metadata {
  const metadata = new Metadata();
  metadata.set('hasleader', 'true');
  if (token !== undefined) metadata.set('token', token);
  return metadata;
}

function onCall(channel: HostChannel): void {
  if (channel.openCalls === 0) onReply(channel);
  channel.openCalls += 1;
}

function onReply(channel: HostChannel): void {
  channel.silentSinceMs = systemClock.monotonicMs();
}

function isFaultOfHost({ code }: ServiceError, { silentSinceMs }: HostChannel): boolean {
  if (code === status.DEADLINE_EXCEEDED) return systemClock.monotonicMs() - silentSinceMs > MAX_SILENCE_MS;
  return code === status.UNAVAILABLE || code === status.CANCELLED || code === status.INTERNAL;
}

function methodOf<Messages extends readonly [object, object]>(name: string) {
  const [service, method] = name.split('.') as [string, string];
  const methods = definitions[`etcdserverpb.${service}`] as Record<
    string,
    MethodDefinition<Messages[0], Messages[1]>
  >;
  return methods[method] as MethodDefinition<Messages[0], Messages[1]>;
}
