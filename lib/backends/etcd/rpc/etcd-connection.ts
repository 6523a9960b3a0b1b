import type { ChannelCredentials, ClientDuplexStream, ServiceError } from '@grpc/grpc-js';
import { systemClock } from '../../../core/clock.js';
import { withTimeout } from '../../../core/requests/store-timeout.js';
import { EtcdError, mustAuthenticateAgain, toReadableError, wasNeverSent } from './etcd-errors.js';
import { HostChannel, deadlineError } from './host-channel.js';
import type { StreamMethods, UnaryMethods } from './messages.js';

export interface ConnectionParts {
  /** `host:port`. */
  readonly hosts: readonly string[];
  readonly credentials: ChannelCredentials;
  readonly auth: { readonly user: string; readonly password: string } | undefined;
  /** For messages. */
  readonly keyPrefix: string;
}

/**
 * The connection to one member of the cluster at a time. When the member cannot be reached, does not answer or has no leader,
 * the next call goes to the next host. Opened by the first call.
 */
export class EtcdConnection {
  readonly #parts: ConnectionParts;
  readonly #onLeave = new Set<() => void>();
  #hostIndex = 0;
  #channel: HostChannel | undefined;
  #token: Promise<string | undefined> | undefined;
  #isClosed = false;

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
        return await channel.send({ name, request, token, endsAtMs });
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
  openStream<Name extends keyof StreamMethods>(
    name: Name,
    timeoutMs: number,
  ): Promise<ClientDuplexStream<StreamMethods[Name][0], StreamMethods[Name][1]>> {
    return this.#once(timeoutMs, (channel, token) => channel.openStream(name, token));
  }

  /** Sends one message over a stream of its own, and resolves to the first reply. */
  exchange<Name extends keyof StreamMethods>(
    name: Name,
    request: StreamMethods[Name][0],
    timeoutMs: number,
  ): Promise<StreamMethods[Name][1]> {
    return this.#once(timeoutMs, (channel, token, endsAtMs) =>
      channel.exchange({ name, request, token, endsAtMs }),
    );
  }

  /** Calls back when another host takes the place of the present one. */
  onLeave(listener: () => void): void {
    this.#onLeave.add(listener);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Calls fail from now on, also those of requests that have begun: nothing would close what they open. */
  close(): void {
    this.#isClosed = true;
    if (this.#channel) this.#leave(this.#channel);
  }

  /** For a new request after {@link close}. */
  reopen(): void {
    this.#isClosed = false;
  }

  async #once<T>(
    timeoutMs: number,
    start: (channel: HostChannel, token: string | undefined, endsAtMs: number) => Promise<T> | T,
  ): Promise<T> {
    const endsAtMs = systemClock.monotonicMs() + timeoutMs;
    const channel = this.#open();
    try {
      const token = await this.#authenticate(channel, endsAtMs);
      return await start(channel, token, endsAtMs);
    } catch (cause) {
      const error = cause as ServiceError;
      this.#onError(error, channel);
      throw this.#toReadable(error, channel.host, timeoutMs);
    }
  }

  #open(): HostChannel {
    if (this.#isClosed) throw new EtcdError('the backend was closed', { hasNoEffect: true });
    const { hosts, credentials } = this.#parts;
    const host = hosts[this.#hostIndex % hosts.length] ?? '';
    return (this.#channel ??= new HostChannel(host, credentials));
  }

  #onError(error: ServiceError, channel: HostChannel): void {
    if (mustAuthenticateAgain(error)) this.#token = undefined;
    if (channel.isFaulty(error)) this.#leave(channel);
  }

  /** A call that was refused or has never left this process can be sent again, to the next host. */
  #mayResend(error: ServiceError): boolean {
    return wasNeverSent(error) || (this.#parts.auth !== undefined && mustAuthenticateAgain(error));
  }

  #leave(channel: HostChannel): void {
    if (this.#channel !== channel) return;
    this.#channel = undefined;
    this.#token = undefined;
    this.#hostIndex += 1;
    channel.close();
    for (const listener of this.#onLeave) listener();
  }

  async #authenticate(channel: HostChannel, endsAtMs: number): Promise<string | undefined> {
    const { auth } = this.#parts;
    if (!auth) return undefined;
    const token = (this.#token ??= this.#askForToken(channel, endsAtMs, auth));
    // The call that asked for it may have more time than this one.
    if (await withTimeout(systemClock, endsAtMs - systemClock.monotonicMs(), token)) return token;
    throw deadlineError();
  }

  #askForToken(
    channel: HostChannel,
    endsAtMs: number,
    { user, password }: { readonly user: string; readonly password: string },
  ): Promise<string | undefined> {
    const request = { name: user, password };
    const token = channel.send({ name: 'Auth.Authenticate', request, token: undefined, endsAtMs }).then(
      (reply) => reply.token,
      (error: unknown) => {
        if (/not enabled/.test((error as ServiceError).details)) return undefined;
        throw error;
      },
    );
    token.catch(() => {
      if (this.#token === token) this.#token = undefined;
    });
    return token;
  }

  #toReadable(error: ServiceError, host: string, timeoutMs: number): Error {
    return toReadableError({ error, timeoutMs, host, keyPrefix: this.#parts.keyPrefix });
  }
}
