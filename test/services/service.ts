/** How a server is started; everything left out is chosen so that nothing clashes with another process. */
export interface ServiceOptions {
  /** @default a free port on the loopback address */
  readonly port?: number;
  /** Further arguments of the server; they win over ours. @default none */
  readonly args?: readonly string[];
  /** Further variables of its environment. @default none */
  readonly env?: Readonly<Record<string, string>>;
  /** A folder given from outside is kept by `stop`. @default a temporary folder, removed by `stop` */
  readonly dataDir?: string;
}

/** A private server of this process. If this process dies, however it dies, the server ends a moment later. */
export interface Service {
  readonly name: string;
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** After a `kill`, start a new server here and on the same port; then stop both: the first owns the folder. */
  readonly dataDir: string;
  /** Settles once the server and all it forked are gone; before that, port and folder are still in use. */
  readonly exited: Promise<void>;
  /** Sends a signal and does not wait; nothing happens when the server is already gone. */
  kill(signal: NodeJS.Signals): void;
  /** Ends the server, by force if it does not obey, and removes its temporary folder. Safe to call twice. */
  stop(): Promise<void>;
}
