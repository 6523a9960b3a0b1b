import { type Unknown, unknown } from '../../core/backend.js';
import { LockConfigError } from '../../core/errors.js';
import { reasonOf } from '../../core/shown.js';
import { type Server, plainly } from './connection.js';
import type { ScriptRequest, ScriptRunner } from './script.js';

export interface ReplicaOptions {
  /**
   * So many replicas must have acknowledged a grant or a renewal before it counts; with fewer it is withdrawn. A failover
   * then hardly ever forgets a grant. It still may: when a replica is promoted that has not seen it, or when the replica
   * that has is restarted before. So this replaces no fencing token.
   *
   * Costs a round trip between the servers for each grant and renewal. Not for Cluster clients.
   *
   * @default none: a grant counts as soon as the primary has made it
   */
  readonly minReplicas?: number;
  /**
   * How long the replicas have to acknowledge, in ms. What else is asked for over the connection waits as well.
   *
   * @default 200
   */
  readonly replicaTimeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 200;
/** Asked to wait for so many, the server tells at once how many have acknowledged. */
const NONE = 0;

/** Waits until replicas have what was granted. */
export class Replicas {
  readonly #wanted: number;
  readonly #timeoutMs: number;
  #waiting = 0;
  #areAway = false;

  constructor(count: number, timeoutMs: number = DEFAULT_TIMEOUT_MS) {
    this.#wanted = count;
    this.#timeoutMs = timeoutMs;
  }

  /** @throws LockConfigError if the server cannot be asked about its replicas, and an Error if they are too few */
  async check(server: Server): Promise<void> {
    try {
      const count = await server.wait(NONE, this.#timeoutMs);
      if (count < this.#wanted) throw new Error(`only ${count} of ${this.#wanted} replicas are connected`);
    } catch (cause) {
      throw refusal(cause);
    }
  }

  /** Whoever runs these requests through it hears what the replicas say; nobody if no replica need know of them. */
  witness(server: Server, requests: readonly ScriptRequest[]): Witness | undefined {
    if (!requests.some(({ terms }) => /^(acquire|claim|renew) /.test(terms))) return undefined;
    return new Witness(server, () => this.#doubt(server));
  }

  /** Why what was just written may be lost in a failover; nothing if enough replicas have it. */
  async #doubt(server: Server): Promise<Unknown | undefined> {
    // While replicas are away, those who come behind somebody who waits for them would all wait in turn.
    if (this.#areAway && this.#waiting > 0) {
      return this.#ask(
        server,
        NONE,
        `at once (while replicas are away, one request at a time waits ${this.#timeoutMs} ms for them)`,
      );
    }
    this.#waiting += 1;
    try {
      return await this.#ask(server, this.#wanted, `within ${this.#timeoutMs} ms`);
    } finally {
      this.#waiting -= 1;
    }
  }

  /** `limit` says how long that may take. */
  async #ask(server: Server, awaited: number, limit: string): Promise<Unknown | undefined> {
    try {
      const count = await server.wait(awaited, this.#timeoutMs);
      this.#areAway = count < this.#wanted;
      if (!this.#areAway) return undefined;
      const found = `${count} of ${this.#wanted} replicas acknowledged it ${limit}`;
      return unknown(new Error(`only ${found}; see minReplicas`));
    } catch (cause) {
      return unknown(refusal(cause));
    }
  }
}

/** Runs a script with the question for its replicas right behind, in the same round trip. */
export class Witness implements ScriptRunner {
  readonly #server: ScriptRunner;
  readonly #ask: () => Promise<Unknown | undefined>;
  #doubt: Promise<Unknown | undefined> | undefined;

  constructor(server: ScriptRunner, ask: () => Promise<Unknown | undefined>) {
    this.#server = server;
    this.#ask = ask;
  }

  eval(...args: Parameters<ScriptRunner['eval']>): Promise<unknown> {
    return this.#sent(this.#server.eval(...args));
  }

  evalsha(...args: Parameters<ScriptRunner['evalsha']>): Promise<unknown> {
    return this.#sent(this.#server.evalsha(...args));
  }

  /** The answers, without the grants and renewals that too few replicas know of. */
  async confirm(told: readonly string[]): Promise<readonly (string | Unknown)[]> {
    if (!told.some(mustLast)) return told;
    const doubt = await this.#doubt;
    return doubt ? told.map((answer) => (mustLast(answer) ? doubt : answer)) : told;
  }

  // A script that had to be sent again, as text, is asked about again.
  #sent(answer: Promise<unknown>): Promise<unknown> {
    this.#doubt = this.#ask();
    return answer;
  }
}

const mustLast = (told: string) => /^(granted|renewed)\b/.test(told);

function refusal(cause: unknown): unknown {
  if (!/^NOPERM|unknown command/i.test(reasonOf(cause))) return plainly(cause);
  return new LockConfigError(
    `minReplicas needs the command WAIT, which this server refuses (${reasonOf(cause)}). Allow it with the ACL rule ` +
      `+wait, or leave minReplicas out.`,
    { cause },
  );
}
