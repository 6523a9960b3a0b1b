import type { LockBackend } from './backend.js';
import type { ServerStatus } from './store-notices.js';
import { systemClock } from './clock.js';
import { healthStoreKey } from './store-key.js';
import { StoreTimeoutError, withTimeout } from './requests/store-timeout.js';

/** The servers of a quorum, when some of them are away. */
interface AwayServers {
  readonly servers: number;
  readonly voting: number;
  /** How many servers must agree. */
  readonly needed: number;
  /** The servers that do not count (`host:port`), and why. */
  readonly away: readonly string[];
}

/** What a health check found. */
export interface StoreHealthResult extends Partial<AwayServers> {
  /** `degraded`: locks are granted, but servers of the quorum are away. */
  readonly status: 'up' | 'degraded' | 'down';
  /** Why the store cannot be used. */
  readonly cause?: unknown;
}

interface StoreHealthParts {
  readonly backend: LockBackend;
  readonly namespace: string;
  /** After it has aborted, no lock is granted any more. */
  readonly stopping: AbortSignal;
}

/** Finds out whether the store can be used now. */
export class StoreHealth {
  readonly #parts: StoreHealthParts;
  readonly #away = new Map<string, string>();
  #counts: Pick<AwayServers, 'servers' | 'needed'> = { servers: 0, needed: 0 };

  constructor(parts: StoreHealthParts) {
    this.#parts = parts;
  }

  onServerStatus({ server, fault, servers, needed }: ServerStatus): void {
    this.#counts = { servers, needed };
    if (fault === undefined) this.#away.delete(server);
    else this.#away.set(server, fault);
  }

  /** Reads from the store. Resolves within `timeoutMs` of real time, and never rejects. */
  async check(timeoutMs: number): Promise<StoreHealthResult> {
    try {
      this.#parts.stopping.throwIfAborted();
      const isAnswered = await withTimeout(systemClock, timeoutMs, this.#read(timeoutMs));
      if (!isAnswered) throw new StoreTimeoutError(timeoutMs);
      return { status: this.#away.size > 0 ? 'degraded' : 'up', ...this.#awayServers };
    } catch (cause) {
      return { status: 'down', cause, ...this.#awayServers };
    }
  }

  get #awayServers(): AwayServers | undefined {
    if (this.#away.size === 0) return undefined;
    const { servers, needed } = this.#counts;
    const away = [...this.#away].map(([server, fault]) => `${server} ${fault}`);
    return { servers, voting: servers - away.length, needed, away };
  }

  /** The check finds a store that takes no writes. The reading finds one that is connected, but does not answer. */
  async #read(timeoutMs: number): Promise<void> {
    const { backend, namespace } = this.#parts;
    const key = healthStoreKey(namespace);
    await Promise.all([backend.check?.(timeoutMs, key), backend.inspect(key, timeoutMs)]);
  }
}
