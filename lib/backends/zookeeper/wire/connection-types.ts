import type { ConnectionOptions } from 'node:tls';
import type { Moment } from '../../../core/clock.js';

export interface HostAddress {
  readonly host: string;
  readonly port: number;
}

export interface ConnectionSettings {
  readonly tls: ConnectionOptions | undefined;
  /** `user:password` of the digest scheme. */
  readonly digest: string | undefined;
}

/** What a client sends to open a session, or to continue one. */
export interface SessionRequest {
  /** 0 for a new session. */
  readonly id: bigint;
  readonly password: Buffer;
  readonly timeoutMs: number;
  /** The newest transaction that the client has seen. A server that has not seen it refuses the connection. */
  readonly lastZxid: bigint;
}

/** A timeout of 0 means that the session is over. */
export type SessionReply = Omit<SessionRequest, 'lastZxid'>;

/** Receives what arrives over a connection. */
export interface ConnectionListener {
  onReply(sentAt: Moment, isCommitted: boolean): void;
  /** A watched node is gone, or has changed. */
  onNotice(path: string): void;
  onClosed(): void;
}
