import { type Socket, connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { type Moment, momentOf, systemClock } from '../../../core/clock.js';
import { nextTick } from '../../../core/real-timers.js';
import { replyWithin } from '../../../core/requests/store-timeout.js';
import type {
  ConnectionListener,
  ConnectionSettings,
  HostAddress,
  SessionReply,
  SessionRequest,
} from './connection-types.js';
import { FrameReader } from './frame-reader.js';
import { JuteReader, JuteWriter } from './jute.js';
import type { Operation } from './operations.js';
import { connectionLostError, notConnectedError, refusalError, CODE } from './zookeeper-errors.js';

interface PendingReply {
  readonly xid: number;
  readonly sentAt: Moment;
  readonly operation: Operation<unknown>;
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

const XID = { notice: -1, ping: -2, auth: -4 };
const TYPE = { ping: 11, auth: 100, closeSession: -11 };
const END_TIMEOUT_MS = 1_000;
const NO_PASSWORD = Buffer.alloc(16);

/**
 * One connection to one server. It never sends a request later: one for which it is not open rejects at once, and those without a
 * reply reject when it closes. Replies arrive in the order of the requests.
 */
export class HostConnection {
  readonly #host: string;
  readonly #socket: Socket;
  readonly #pending: PendingReply[] = [];
  readonly #pings: { readonly sentAt: Moment; readonly resolve: () => void }[] = [];
  #listener: ConnectionListener | undefined;
  #onHandshake: ((reply: SessionReply) => void) | undefined;
  #onFailure: ((error: Error) => void) | undefined;
  /** Why it was closed, unless its owner did so. */
  #failure: Error | undefined;
  #lastXid = 0;
  #isClosed = false;
  /** What was written in this turn of the event loop. */
  #unsent: Buffer[] = [];
  lastZxid = 0n;
  /** When the newest bytes arrived, on the monotonic clock. */
  lastReadAtMs = systemClock.monotonicMs();

  constructor({ host, port }: HostAddress, { tls }: ConnectionSettings) {
    this.#host = `${host}:${port}`;
    this.#socket = tls ? connectTls({ host, port, ...tls }) : connect({ host, port });
    this.#socket.setNoDelay(true);
    const frames = new FrameReader((frame) => this.#onFrame(frame));
    this.#socket.on('data', (bytes) => {
      this.lastReadAtMs = systemClock.monotonicMs();
      this.#read(frames, bytes);
    });
    this.#socket.on('error', ({ code }: NodeJS.ErrnoException) => this.#close(code));
    this.#socket.on('close', () => this.close());
  }

  get host(): string {
    return this.#host;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get hasPending(): boolean {
    return this.#pending.length > 0;
  }

  /** Resolves to the reply of the server, over whose timeout of 0 the caller decides. */
  async open(session: SessionRequest, { digest }: ConnectionSettings): Promise<SessionReply> {
    const handshake = new Promise<SessionReply>((resolve, reject) => {
      this.#onHandshake = resolve;
      this.#onFailure = reject;
    });
    this.lastZxid = session.lastZxid;
    const request = new JuteWriter().int(0).long(session.lastZxid).int(session.timeoutMs).long(session.id);
    this.#write(request.bytes(session.id === 0n ? NO_PASSWORD : session.password).bool(false));
    if (digest !== undefined) {
      const auth = new JuteWriter().int(XID.auth).int(TYPE.auth).int(0).text('digest');
      this.#write(auth.bytes(Buffer.from(digest)));
    }
    return handshake;
  }

  /** @throws the reason if the connection was closed meanwhile: it may end with the reply to its handshake */
  listen(listener: ConnectionListener): void {
    if (this.#isClosed) throw this.#failure ?? notConnectedError(this.#host);
    this.#listener = listener;
    // An open session keeps no process alive. A request that somebody waits for does.
    this.#socket.unref();
  }

  /** Settles when the reply has arrived, or with an error when the connection is closed. */
  send<Reply>(operation: Operation<Reply>): Promise<Reply> {
    if (this.#isClosed) return Promise.reject(notConnectedError(this.#host));
    return new Promise<Reply>((resolve, reject) => {
      this.#lastXid = (this.#lastXid + 1) & 0x7fffffff;
      const xid = this.#lastXid;
      const sentAt = momentOf(systemClock);
      if (this.#pending.length === 0) this.#socket.ref();
      this.#pending.push({ xid, sentAt, operation, resolve: resolve as (reply: unknown) => void, reject });
      const writer = new JuteWriter().int(xid).int(operation.type);
      operation.encode(writer);
      this.#write(writer);
    });
  }

  /** Resolves when the server has replied. Otherwise it stays pending. */
  ping(): Promise<void> {
    return new Promise((resolve) => {
      this.#pings.push({ sentAt: momentOf(systemClock), resolve });
      this.#write(new JuteWriter().int(XID.ping).int(TYPE.ping));
    });
  }

  /** Ends the session in ZooKeeper, with all its locks. Resolves when the server has done so, does not reply, or is gone. */
  async endSession(): Promise<void> {
    const nothing = () => undefined;
    const operation = { type: TYPE.closeSession, path: '/', isWrite: true, encode: nothing, decode: nothing };
    await replyWithin(systemClock, END_TIMEOUT_MS, () => this.send(operation)).catch(nothing);
  }

  close(): void {
    this.#close();
  }

  #close(networkCode?: string): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket.destroy();
    this.#onFailure?.(notConnectedError(this.#host, networkCode));
    for (const { reject } of this.#pending.splice(0)) reject(connectionLostError(this.#host));
    this.#listener?.onClosed();
  }

  /** All that is written in one turn of the event loop goes out together, as one buffer. */
  #write(message: JuteWriter): void {
    if (this.#unsent.length === 0) nextTick(() => this.#flush());
    this.#unsent.push(message.toFrame());
  }

  #flush(): void {
    const frames = this.#unsent;
    this.#unsent = [];
    if (!this.#isClosed) this.#socket.write(Buffer.concat(frames));
  }

  #read(frames: FrameReader, bytes: Buffer): void {
    try {
      if (!frames.add(bytes)) this.close();
    } catch (error) {
      // A message was too short: the peer is no ZooKeeper.
      if (!(error instanceof RangeError)) throw error;
      this.close();
    }
  }

  #onFrame(frame: Buffer): void {
    const reader = new JuteReader(frame);
    const onHandshake = this.#onHandshake;
    if (onHandshake) {
      this.#onHandshake = undefined;
      reader.int();
      onHandshake({ timeoutMs: reader.int(), id: reader.long(), password: Buffer.from(reader.bytes()) });
      return;
    }
    const [xid, zxid, code] = [reader.int(), reader.long(), reader.int()];
    if (xid === XID.notice) this.#onNotice(reader);
    else if (xid === XID.ping) this.#onPing();
    else if (xid === XID.auth) this.#onAuthReply(code);
    else this.#onReply({ xid, zxid, code, reader });
  }

  #onNotice(reader: JuteReader): void {
    // Its type, and the state of the session.
    reader.int();
    reader.int();
    this.#listener?.onNotice(reader.text());
  }

  #onPing(): void {
    const ping = this.#pings.shift();
    if (!ping) return;
    this.#listener?.onReply(ping.sentAt, false);
    ping.resolve();
  }

  #onAuthReply(code: number): void {
    if (code !== 0) this.#fail(refusalError(CODE.authFailed, '/'));
  }

  #onReply({ xid, zxid, code, reader }: ReplyFrame): void {
    const pending = this.#pending.shift();
    if (pending?.xid !== xid) {
      // The order is lost, so no later reply would be right.
      if (pending) this.#pending.unshift(pending);
      this.close();
      return;
    }
    if (this.#pending.length === 0) this.#socket.unref();
    if (zxid > this.lastZxid) this.lastZxid = zxid;
    const { operation, sentAt, resolve, reject } = pending;
    try {
      if (code !== 0) throw refusalError(code, operation.path);
      const reply = operation.decode(reader);
      this.#listener?.onReply(sentAt, operation.isWrite);
      resolve(reply);
    } catch (error) {
      this.#listener?.onReply(sentAt, false);
      reject(error as Error);
    }
  }

  /** Requests that are still pending get the reason, too. */
  #fail(error: Error): void {
    this.#failure = error;
    this.#onFailure?.(error);
    for (const { reject } of this.#pending.splice(0)) reject(error);
    this.close();
  }
}

interface ReplyFrame {
  readonly xid: number;
  readonly zxid: bigint;
  readonly code: number;
  readonly reader: JuteReader;
}
