import type { Cluster, Redis } from 'ioredis';
import { systemClock } from '../../../core/clock.js';
import { type ServerClient, createRequestClient } from '../client-factory.js';
import { isReplicaError, replicaError, toReadableError } from '../redis-errors.js';
import { type RedisSource, isCluster } from '../redis-source.js';
import { SilenceDetector } from './silence-detector.js';

/**
 * After this time without any reply to an open request, a spare connection is opened. Early enough that a renewal, which no
 * caller waits for, can be repeated over it.
 */
const SUSPICIOUS_SILENCE_MS = 500;
/** How long to wait for an attempt to connect. The attempt itself may go on: a server loads its data, Sentinels are silent. */
const MAX_CONNECT_ATTEMPT_MS = 5_000;

/** The events that end an attempt to connect. */
const ATTEMPT_EVENTS = ['ready', 'close', 'end'] as const;

/** An attempt to connect that is in progress. */
interface ConnectAttempt {
  readonly outcome: Promise<ServerClient>;
  /** Settles `outcome` by the present state of the client. */
  readonly settle: () => void;
}

/** The backend's own connection. It is opened by the first request, and again by a request after `close`. */
export class RedisConnection {
  readonly #source: RedisSource;
  readonly #maxServerWaitMs: number | undefined;
  readonly #silenceDetector: SilenceDetector;
  #client: Redis | Cluster | undefined;
  /** Replaces the silent client if it replies first. */
  #spare: Redis | undefined;
  #attempt: ConnectAttempt | undefined;
  #lastError: Error | undefined;
  /** Set when the server turned out to be a replica, until ioredis has reconnected for that reason. */
  #replicaError: Error | undefined;

  /** The server may spend up to `maxServerWaitMs` on a request, in WAIT. */
  constructor(source: RedisSource, maxServerWaitMs?: number) {
    this.#source = source;
    this.#maxServerWaitMs = maxServerWaitMs;
    this.#silenceDetector = new SilenceDetector(SUSPICIOUS_SILENCE_MS + (maxServerWaitMs ?? 0), () =>
      this.#openSpare(),
    );
  }

  /** The client, if it is connected now. */
  get ready(): ServerClient | undefined {
    return this.#client?.status === 'ready' ? this.#client : undefined;
  }

  /**
   * The client, once it is connected.
   *
   * @throws Error if the attempt to connect fails, or takes longer than `MAX_CONNECT_ATTEMPT_MS`
   */
  open(): Promise<ServerClient> {
    this.#client ??= this.#createClient();
    if (this.#client.status === 'ready') return Promise.resolve(this.#client);
    this.#attempt ??= this.#connect(this.#client);
    return this.#attempt.outcome;
  }

  /** Watches an open request. If its connection is silent and a spare one replies, it rejects like a request of a lost connection. */
  watch<T>(result: Promise<T>): Promise<T> {
    return this.#silenceDetector.watch(result);
  }

  /** The same for a request that is open until {@link onReply}. */
  onRequest(): void {
    this.#silenceDetector.onRequest();
  }

  onReply(): void {
    this.#silenceDetector.onReply();
  }

  /** A readable error for a failed request. */
  explain(cause: unknown): unknown {
    if (isReplicaError(cause)) return (this.#replicaError = replicaError(cause));
    const readable = toReadableError(cause);
    return readable === cause ? cause : (this.#replicaError ?? readable);
  }

  close(): void {
    const client = this.#client;
    this.#client = undefined;
    if (client) end(client);
    this.#silenceDetector.stop();
    this.#dropSpare();
    // Between two attempts to reconnect, ioredis emits no event when it is disconnected.
    this.#attempt?.settle();
  }

  #connect(client: Redis | Cluster): ConnectAttempt {
    let settle = (): void => undefined;
    const outcome = new Promise<ServerClient>((resolve, reject) => {
      settle = (): void => {
        for (const event of ATTEMPT_EVENTS) client.off(event, settle);
        timer.cancel();
        this.#attempt = undefined;
        const { ready } = this; // Perhaps the spare client by now.
        if (ready) {
          this.#lastError = undefined;
          resolve(ready);
        } else reject(this.#failure());
      };
    });
    const timer = systemClock.after(MAX_CONNECT_ATTEMPT_MS, settle);
    for (const event of ATTEMPT_EVENTS) client.on(event, settle);
    // The events report the outcome too, also that of later attempts.
    if (client.status === 'wait' || client.status === 'end') client.connect().catch(() => undefined);
    return { outcome, settle };
  }

  /** A host may have vanished without closing the connection. Not in a Cluster, where it would affect healthy nodes too. */
  #openSpare(): void {
    if (this.#spare || !this.#client || isCluster(this.#client)) return;
    const spare = this.#createClient() as Redis;
    this.#spare = spare;
    const settle = (): void => {
      if (this.#spare !== spare) return;
      if (spare.status === 'ready' && (this.#silenceDetector.isSilentTooLong || !this.ready))
        this.#takeSpare(spare);
      else this.#dropSpare();
    };
    // Without ioredis' ready check, `ready` does not prove that the server replies, so a script does. An error reply is enough. A
    // server that pauses writes for a failover still replies to PING.
    spare.once('ready', () => void spare.eval(EMPTY_SCRIPT, 0).then(settle, settle));
    spare.once('close', settle);
    spare.connect().catch(() => undefined); // The events report the outcome too.
  }

  #takeSpare(spare: Redis): void {
    const silent = this.#client;
    this.#spare = undefined;
    this.#client = spare;
    if (silent) end(silent);
    this.#attempt?.settle();
  }

  #dropSpare(): void {
    if (this.#spare) end(this.#spare);
    this.#spare = undefined;
  }

  #failure(): Error {
    const error: NodeJS.ErrnoException | undefined = this.#lastError;
    // An AggregateError of two addresses has no message.
    const reason = error?.message || error?.code || 'no reply arrived, or the connection was closed';
    const what = error?.name === 'ReplyError' ? 'Redis refuses the connection' : 'Redis cannot be reached';
    return new Error(`${what}: ${reason}`, { cause: this.#lastError });
  }

  #createClient(): Redis | Cluster {
    const client = createRequestClient(this.#source, this.#maxServerWaitMs);
    client.on('error', (error: Error) => {
      // Keeps the reason of a failure; that the connection was closed says less.
      if (!this.#lastError || toReadableError(error) === error) this.#lastError = error;
    });
    client.on('ready', () => (this.#replicaError = undefined));
    return client;
  }
}

function end(client: Redis | Cluster): void {
  client.disconnect();
  // If it was still connecting, ioredis opens connections to the Sentinels even after that.
  client.on('failoverSubscribed', () => client.disconnect());
}

/** Redis pauses it together with writes, because a script may write. */
const EMPTY_SCRIPT = 'return 0';

/** Changes nothing, because nothing has this key. A server that takes no writes refuses it all the same. */
const WRITE_NOTHING = "return redis.call('SET', KEYS[1], '', 'XX', 'PX', 1)";

/** @throws Error of the server if it takes no writes: its memory is full, replicas are missing, or it cannot save */
export async function checkIsWritable(server: ServerClient, key: string): Promise<void> {
  await server.eval(WRITE_NOTHING, 1, `{${key}}:check`);
}

/** @throws Error if the server is a replica */
export async function checkIsPrimary(server: ServerClient): Promise<void> {
  // If INFO is forbidden, the first request will fail with READONLY.
  const info = await server.info('replication').catch(() => '');
  if (/^role:slave/m.test(info)) throw replicaError();
}
