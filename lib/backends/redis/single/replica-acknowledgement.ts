import { type UnknownResult, unknownResult } from '../../../core/backend.js';
import { LockConfigError } from '../../../core/errors.js';
import { formatReason } from '../../../core/format.js';
import { type ServerClient, toReadableError } from '../connection.js';
import type { ScriptRequest, ScriptRunner } from './commands.js';

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
export class ReplicaAcknowledgement {
  readonly #requiredCount: number;
  readonly #timeoutMs: number;
  #waitingCount = 0;
  #areReplicasMissing = false;

  constructor(count: number, timeoutMs: number = DEFAULT_TIMEOUT_MS) {
    this.#requiredCount = count;
    this.#timeoutMs = timeoutMs;
  }

  /** @throws LockConfigError if the server cannot be asked about its replicas, and an Error if they are too few */
  async check(server: ServerClient): Promise<void> {
    try {
      const count = await server.wait(NONE, this.#timeoutMs);
      if (count < this.#requiredCount)
        throw new Error(`only ${count} of ${this.#requiredCount} replicas are connected`);
    } catch (cause) {
      throw toReplicaError(cause);
    }
  }

  /** Whoever runs these requests through it hears what the replicas say; nobody if no replica need know of them. */
  runnerFor(server: ServerClient, requests: readonly ScriptRequest[]): AcknowledgedScriptRunner | undefined {
    if (!requests.some(({ command }) => /^(acquire|claim|renew) /.test(command))) return undefined;
    return new AcknowledgedScriptRunner(server, () => this.#verifyAcknowledgement(server));
  }

  /** Why what was just written may be lost in a failover; nothing if enough replicas have it. */
  async #verifyAcknowledgement(server: ServerClient): Promise<UnknownResult | undefined> {
    // While replicas are away, those who come behind somebody who waits for them would all wait in turn.
    if (this.#areReplicasMissing && this.#waitingCount > 0) {
      return this.#waitForReplicas(
        server,
        NONE,
        `at once (while replicas are away, one request at a time waits ${this.#timeoutMs} ms for them)`,
      );
    }
    this.#waitingCount += 1;
    try {
      return await this.#waitForReplicas(server, this.#requiredCount, `within ${this.#timeoutMs} ms`);
    } finally {
      this.#waitingCount -= 1;
    }
  }

  /** `limit` says how long that may take. */
  async #waitForReplicas(
    server: ServerClient,
    awaitedCount: number,
    timeLimit: string,
  ): Promise<UnknownResult | undefined> {
    try {
      const count = await server.wait(awaitedCount, this.#timeoutMs);
      this.#areReplicasMissing = count < this.#requiredCount;
      if (!this.#areReplicasMissing) return undefined;
      const found = `${count} of ${this.#requiredCount} replicas acknowledged it ${timeLimit}`;
      return unknownResult(new Error(`only ${found}; see minReplicas`));
    } catch (cause) {
      return unknownResult(toReplicaError(cause));
    }
  }
}

/** Runs a script with the question for its replicas right behind, in the same round trip. */
export class AcknowledgedScriptRunner implements ScriptRunner {
  readonly #server: ScriptRunner;
  readonly #awaitReplicas: () => Promise<UnknownResult | undefined>;
  #failure: Promise<UnknownResult | undefined> | undefined;

  constructor(server: ScriptRunner, awaitReplicas: () => Promise<UnknownResult | undefined>) {
    this.#server = server;
    this.#awaitReplicas = awaitReplicas;
  }

  eval(...args: Parameters<ScriptRunner['eval']>): Promise<unknown> {
    return this.#requestAcknowledgement(this.#server.eval(...args));
  }

  evalsha(...args: Parameters<ScriptRunner['evalsha']>): Promise<unknown> {
    return this.#requestAcknowledgement(this.#server.evalsha(...args));
  }

  /** The answers, without the grants and renewals that too few replicas know of. */
  async confirm(replies: readonly string[]): Promise<readonly (string | UnknownResult)[]> {
    if (!replies.some(mustSurviveFailover)) return replies;
    const failure = await this.#failure;
    return failure ? replies.map((reply) => (mustSurviveFailover(reply) ? failure : reply)) : replies;
  }

  // A script that had to be sent again, as text, is asked about again.
  #requestAcknowledgement(reply: Promise<unknown>): Promise<unknown> {
    this.#failure = this.#awaitReplicas();
    return reply;
  }
}

const mustSurviveFailover = (reply: string) => /^(granted|renewed)\b/.test(reply);

function toReplicaError(cause: unknown): unknown {
  if (!/^NOPERM|unknown command/i.test(formatReason(cause))) return toReadableError(cause);
  return new LockConfigError(
    `minReplicas needs the command WAIT, which this server refuses (${formatReason(cause)}). Allow it with the ACL rule ` +
      `+wait, or leave minReplicas out.`,
    { cause },
  );
}
