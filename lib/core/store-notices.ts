/** A hint that a key is free now, or will be soon. */
export interface ReleaseNotice {
  /** Without a key, notices of any keys may have been missed. */
  readonly key?: string;
  /**
   * The key will be free in this many ms.
   *
   * @default 0
   */
  readonly inMs?: number;
}

/** One of several servers failed or recovered. */
export interface ServerStatus {
  /** `host:port`, for messages. */
  readonly server: string;
  /** Why the server does not count at present. Missing if it counts again. */
  readonly fault?: string;
  /** How many servers count at present. */
  readonly voting: number;
  /** How many must agree: the majority. */
  readonly needed: number;
  /** How many there are. */
  readonly servers: number;
}
