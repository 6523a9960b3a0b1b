import {
  type ChannelCredentials,
  Client,
  type ClientDuplexStream,
  Metadata,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import type { MethodDefinition, ServiceDefinition } from '@grpc/proto-loader';
import { systemClock } from '../../../core/clock.js';
import { setImmediate } from '../../../core/real-timers.js';
import { definitions } from './descriptors.js';
import { CHANNEL_CLOSED, httpStatusOf } from './etcd-errors.js';
import type { StreamMethods, UnaryMethods } from './messages.js';

/** A host that has not replied to anything for this long is left when a call times out. */
const MAX_SILENCE_MS = 300;
/** A timer that fires later than this means that this process was busy or stopped. That is no silence of the host. */
const MAX_TIMER_DELAY_MS = 50;

/** The member does not serve, its data is damaged, or something else than etcd has answered. */
const FAULTY = new Set([
  status.UNAVAILABLE,
  status.CANCELLED,
  status.INTERNAL,
  status.UNIMPLEMENTED,
  status.UNKNOWN,
  status.DATA_LOSS,
]);

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

/** A request, and when its reply is of no use any more, on the monotonic clock. */
export interface HostCall<Name, Request> {
  readonly name: Name;
  readonly request: Request;
  readonly token: string | undefined;
  readonly endsAtMs: number;
}

/** By `Service.Method`. */
const methods: ReadonlyMap<string, MethodDefinition<object, object>> = new Map(
  ['KV', 'Lease', 'Watch', 'Auth', 'Cluster', 'Maintenance'].flatMap((service) => {
    const definition = definitions[`etcdserverpb.${service}`] as ServiceDefinition;
    return Object.entries(definition).map(([method, one]) => [`${service}.${method}`, one] as const);
  }),
);

type Settle<Reply> = (error: ServiceError | null, reply?: Reply) => void;
type Stream<Name extends keyof StreamMethods> = ClientDuplexStream<
  StreamMethods[Name][0],
  StreamMethods[Name][1]
>;

/** A channel to one host. Its calls reject with a `ServiceError`. */
export class HostChannel {
  readonly host: string;
  readonly #client: Client;
  #openCalls = 0;
  /** Since then no reply has arrived, although calls are open. */
  #silentSinceMs = 0;

  constructor(host: string, credentials: ChannelCredentials) {
    this.host = host;
    this.#client = new Client(host, credentials, CHANNEL_OPTIONS);
  }

  send<Name extends keyof UnaryMethods>({
    name,
    request,
    token,
    endsAtMs,
  }: HostCall<Name, UnaryMethods[Name][0]>): Promise<UnaryMethods[Name][1]> {
    const { path, requestSerialize, responseDeserialize } = methodOf<UnaryMethods[Name]>(name);
    const codec = [path, requestSerialize, responseDeserialize] as const;
    return this.#settle(endsAtMs, (settle) =>
      this.#client.makeUnaryRequest(...codec, request, metadataOf(token), settle),
    );
  }

  /** Sends one message over a stream of its own, and resolves to the first reply. */
  exchange<Name extends keyof StreamMethods>({
    name,
    request,
    token,
    endsAtMs,
  }: HostCall<Name, StreamMethods[Name][0]>): Promise<StreamMethods[Name][1]> {
    return this.#settle<StreamMethods[Name][1]>(endsAtMs, (settle) => {
      const stream = this.#stream(name, token);
      const end: typeof settle = (error, reply) => {
        settle(error, reply);
        stream.cancel();
      };
      stream.once('data', (reply: StreamMethods[Name][1]) => end(null, reply));
      stream.on('error', (error: ServiceError) => settle(error));
      stream.once('end', () => end(callError(status.UNAVAILABLE)));
      stream.write(request);
      return stream;
    });
  }

  openStream<Name extends keyof StreamMethods>(name: Name, token: string | undefined): Stream<Name> {
    try {
      return this.#stream(name, token);
    } catch {
      throw channelClosedError();
    }
  }

  /** Whether the next call should go to another host. */
  isFaulty(error: ServiceError): boolean {
    if (error.code === status.DEADLINE_EXCEEDED)
      return systemClock.monotonicMs() - this.#silentSinceMs > MAX_SILENCE_MS;
    return FAULTY.has(error.code) || httpStatusOf(error) !== undefined;
  }

  close(): void {
    this.#client.close();
  }

  #stream<Name extends keyof StreamMethods>(name: Name, token: string | undefined): Stream<Name> {
    const { path, requestSerialize, responseDeserialize } = methodOf<StreamMethods[Name]>(name);
    const codec = [path, requestSerialize, responseDeserialize] as const;
    return this.#client.makeBidiStreamRequest(...codec, metadataOf(token));
  }

  /** Starts a call, and settles when its time is over at the latest, whatever gRPC does. */
  #settle<Reply>(endsAtMs: number, start: (settle: Settle<Reply>) => { cancel(): void }): Promise<Reply> {
    const leftMs = Math.max(endsAtMs - systemClock.monotonicMs(), 0);
    return new Promise((resolve, reject) => {
      let call: { cancel(): void } | undefined;
      let isSettled = false;
      const settle: Settle<Reply> = (error, reply) => {
        if (isSettled) return;
        isSettled = true;
        timer.cancel();
        this.#openCalls -= 1;
        if (error?.code !== status.DEADLINE_EXCEEDED) this.#silentSinceMs = systemClock.monotonicMs();
        if (error) reject(error);
        else resolve(reply as Reply);
      };
      const onTimeout = () => {
        settle(deadlineError());
        call?.cancel();
      };
      // gRPC gets no deadline: its timer follows the wall clock, may be a fake one, and ends a call whose reply is waiting to
      // be read. The turn of the event loop that follows reads it.
      const timer = systemClock.after(leftMs, () => {
        if (systemClock.monotonicMs() - endsAtMs > MAX_TIMER_DELAY_MS)
          this.#silentSinceMs = systemClock.monotonicMs();
        setImmediate(onTimeout);
      });
      if (this.#openCalls === 0) this.#silentSinceMs = systemClock.monotonicMs();
      this.#openCalls += 1;
      try {
        call = start(settle);
      } catch {
        settle(channelClosedError());
      }
    });
  }
}

const callError = (code: status, details = ''): ServiceError =>
  Object.assign(new Error(), { code, details, metadata: new Metadata() });

export const deadlineError = (): ServiceError => callError(status.DEADLINE_EXCEEDED);

/** The channel was left while the call was prepared. */
const channelClosedError = () => callError(status.UNAVAILABLE, CHANNEL_CLOSED);

/** A member without a leader answers at once instead of waiting for one. */
function metadataOf(token: string | undefined): Metadata {
  const metadata = new Metadata();
  metadata.set('hasleader', 'true');
  if (token !== undefined) metadata.set('token', token);
  return metadata;
}

function methodOf<Messages extends readonly [object, object]>(name: string) {
  return methods.get(name) as MethodDefinition<Messages[0], Messages[1]>;
}
