import type { Redis } from 'ioredis';
import { type Timer, systemClock } from '../../../../core/clock.js';
import { LockConfigError } from '../../../../core/errors.js';
import { formatReason } from '../../../../core/format.js';
import { createRequestClient } from '../../client-factory.js';
import { toReadableError } from '../../redis-errors.js';
import type { RedisSource } from '../../redis-source.js';
import { type Handshake, performHandshake } from './handshake.js';

interface ConnectionListener {
  /** @throws Error if the server cannot be used */
  onHandshake(handshake: Handshake): void;
  /** The connection can be used from now on. */
  onReady(): void;
  /** It was lost. Returns whether requests should wait for the next attempt to connect. */
  onLost(): boolean;
}

/** An attempt to connect that is in progress. `settle` ends the wait for it. */
interface ConnectAttempt {
  readonly outcome: Promise<void>;
  readonly settle: () => void;
}

const MIN_HANDSHAKE_PAUSE_MS = 50;
const MAX_HANDSHAKE_PAUSE_MS = 2_000;

/** The connection to one server of a quorum. On each new connection it performs the handshake, until that succeeds. */
export class ServerConnection {
  readonly #source: RedisSource;
  readonly #listener: ConnectionListener;
  #client: Redis | undefined;
  #attempt: ConnectAttempt | undefined;
  #isReady = false;
  #failedHandshakes = 0;
  #handshakeTimer: Timer | undefined;
  #lastError: unknown;

  constructor(source: RedisSource, listener: ConnectionListener) {
    this.#source = source;
    this.#listener = listener;
  }

  get isOpen(): boolean {
    return this.#client !== undefined;
  }

  /** The connection after its handshake. */
  get client(): Redis | undefined {
    return this.#isReady ? this.#client : undefined;
  }

  /** Why the server cannot be reached. */
  get lastError(): unknown {
    return this.#lastError;
  }

  /**
   * Connects if there is no connection. Returns a promise while the first attempt to connect is in progress, or the first
   * one after the connection was lost; it resolves when that attempt has ended.
   */
  open(): Promise<void> | undefined {
    if (!this.#client) this.#connect();
    return this.#attempt?.outcome;
  }

  /** Ends the wait for the present attempt to connect. */
  settleAttempt(): void {
    this.#attempt?.settle();
    this.#attempt = undefined;
  }

  close(): void {
    this.#abandon();
    this.settleAttempt();
  }

  /** The connection may be lost without notice: opens another one. */
  replace(): void {
    this.#abandon();
    this.#lastError = new Error('its connection fell silent');
    this.#listener.onLost();
    this.#connect();
  }

  #abandon(): void {
    const client = this.#client;
    this.#client = undefined;
    this.#clearHandshake();
    client?.disconnect();
  }

  #clearHandshake(): void {
    this.#isReady = false;
    this.#handshakeTimer?.cancel();
    this.#handshakeTimer = undefined;
  }

  #connect(): void {
    this.#attempt = createConnectAttempt();
    // Never a Cluster: `resolveRedlockOptions` has checked that.
    const client = createRequestClient(this.#source) as Redis;
    this.#client = client;
    client.on('error', (error: Error) => {
      if (this.#client === client) this.#lastError = toReadableError(error);
    });
    client.on('ready', () => void this.#performHandshake(client));
    client.on('close', () => {
      if (this.#client !== client) return;
      this.#clearHandshake();
      const isAwaited = this.#listener.onLost();
      this.settleAttempt();
      if (isAwaited) this.#attempt = createConnectAttempt();
    });
    client.connect().catch(() => undefined); // The events report the outcome too.
  }

  async #performHandshake(client: Redis): Promise<void> {
    const isPresent = () => this.#client === client && client.status === 'ready';
    try {
      const handshake = await performHandshake(client);
      if (!isPresent()) return;
      this.#listener.onHandshake(handshake);
      this.#isReady = true;
      this.#failedHandshakes = 0;
      this.#lastError = undefined;
      this.#listener.onReady();
      this.settleAttempt();
    } catch (cause) {
      if (!isPresent()) return;
      this.#lastError = isForbidden(cause) ? forbiddenError(cause) : toReadableError(cause);
      this.settleAttempt();
      this.#retryHandshake(client, isForbidden(cause));
    }
  }

  /** A forbidden command may be allowed later on the same connection. After other failures, a new one may lead elsewhere. */
  #retryHandshake(client: Redis, isSameConnection: boolean): void {
    const pauseMs = MIN_HANDSHAKE_PAUSE_MS * 2 ** this.#failedHandshakes;
    this.#failedHandshakes += 1;
    this.#handshakeTimer = systemClock.after(Math.min(pauseMs, MAX_HANDSHAKE_PAUSE_MS), () => {
      this.#handshakeTimer = undefined;
      if (isSameConnection) void this.#performHandshake(client);
      else client.disconnect(true);
    });
  }
}

function createConnectAttempt(): ConnectAttempt {
  let settle = (): void => undefined;
  const outcome = new Promise<void>((resolve) => (settle = resolve));
  return { outcome, settle };
}

const isForbidden = (cause: unknown) => /^NOPERM|unknown command/i.test(formatReason(cause));

const forbiddenError = (cause: unknown) =>
  new LockConfigError(
    `redlockBackend() needs the commands INFO and TIME, which this server refuses (${formatReason(cause)}). Allow them with ` +
      `the ACL rules +info and +time.`,
    { cause },
  );
