import { type UnknownResult, unknownResult } from '../../../core/unknown-result.js';
import { LockConfigError } from '../../../core/errors.js';
import { formatReason } from '../../../core/format.js';
import type { ServerClient } from '../client-factory.js';
import { toReadableError } from '../redis-errors.js';
import type { ScriptRunner } from '../script-runner.js';
import type { ScriptRequest } from './script-requests.js';

export interface ReplicaOptions {
  /**
   * How many replicas must acknowledge a grant or a renewal before it counts. With fewer, the grant is withdrawn. So a
   * failover rarely loses a grant. But it still can, if a replica is promoted that has not received the grant, or if
   * the replica that has received it restarts before. So this does not replace fencing tokens. The same applies to a
   * pause of a job and its end, to the registration of a job, and to the end of a run.
   *
   * It costs one more round trip, between the servers, for each of them. Not for a Cluster.
   *
   * @default none: a grant counts as soon as the primary has made it
   */
  readonly minReplicas?: number;
  /**
   * How long to wait for the acknowledgements, in ms. Other requests on the same connection wait too.
   *
   * @default 200
   */
  readonly replicaTimeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 200;
/** With this count, WAIT returns at once how many replicas have acknowledged. */
const NONE = 0;

/** Runs a script and sends WAIT right after it. */
export interface AcknowledgedScriptRunner extends ScriptRunner {
  /** The replies; those whose effect too few replicas have acknowledged become unknown results. */
  confirm(replies: readonly string[]): Promise<readonly (string | UnknownResult)[]>;
}

/** Waits until enough replicas have acknowledged what a failover must not lose. */
export class ReplicaAcknowledgement {
  readonly #requiredCount: number;
  readonly #timeoutMs: number;
  #waitingCount = 0;
  #areReplicasMissing = false;

  constructor(count: number, timeoutMs: number = DEFAULT_TIMEOUT_MS) {
    this.#requiredCount = count;
    this.#timeoutMs = timeoutMs;
  }

  /** @throws LockConfigError if the server refuses WAIT; an Error if too few replicas are connected */
  async check(server: ServerClient): Promise<void> {
    try {
      const count = await server.wait(NONE, this.#timeoutMs);
      if (count < this.#requiredCount)
        throw new Error(`only ${count} of ${this.#requiredCount} replicas are connected`);
    } catch (cause) {
      throw toReplicaError(cause);
    }
  }

  /** A runner that sends WAIT right after a script, in the same round trip; `undefined` if no request needs it. */
  runnerFor(server: ServerClient, requests: readonly ScriptRequest[]): AcknowledgedScriptRunner | undefined {
    if (!requests.some(needsReplicas)) return undefined;
    let verdict: Promise<UnknownResult | undefined> | undefined;
    // If the script is sent again as text, WAIT is sent again too.
    const withWait = (reply: Promise<unknown>) => {
      verdict = this.#verifyAcknowledgement(server);
      return reply;
    };
    return {
      eval: (...args) => withWait(server.eval(...args)),
      evalsha: (...args) => withWait(server.evalsha(...args)),
      confirm: async (replies) => {
        const isAwaited = (reply: string, index: number) =>
          needsReplicas(requests[index]) && !REFUSAL.test(reply);
        const failure = replies.some(isAwaited) ? await verdict : undefined;
        return failure ? replies.map((reply, index) => (isAwaited(reply, index) ? failure : reply)) : replies;
      },
    };
  }

  /** `undefined` if enough replicas have the last write; otherwise an unknown result that says why a failover may lose it. */
  async #verifyAcknowledgement(server: ServerClient): Promise<UnknownResult | undefined> {
    // While replicas are away, only one request waits for them. Otherwise all requests behind it would wait one after another.
    const mayWait = !this.#areReplicasMissing || this.#waitingCount === 0;
    if (mayWait) this.#waitingCount += 1;
    try {
      const count = await server.wait(mayWait ? this.#requiredCount : NONE, this.#timeoutMs);
      this.#areReplicasMissing = count < this.#requiredCount;
      if (!this.#areReplicasMissing) return undefined;
      const timeLimit = mayWait
        ? `within ${this.#timeoutMs} ms`
        : `at once (while replicas are away, one request at a time waits ${this.#timeoutMs} ms for them)`;
      const found = `${count} of ${this.#requiredCount} replicas acknowledged it ${timeLimit}`;
      return unknownResult(new Error(`only ${found}; see minReplicas`));
    } catch (cause) {
      return unknownResult(toReplicaError(cause));
    } finally {
      if (mayWait) this.#waitingCount -= 1;
    }
  }
}

/**
 * Whether a failover must not lose the effect of the request. A lost release only delays the next holder, but a lost end of
 * a run would repeat the run.
 */
const needsReplicas = (request: ScriptRequest | undefined) =>
  /^(acquire|claim|renew|finish|registerTicks|pause|resume)\b/.test(request?.command ?? '');

/** A reply to a request that has had no effect. */
const REFUSAL = /^(taken|refused|lost|late|needsQueue)\b/;

function toReplicaError(cause: unknown): unknown {
  if (!/^NOPERM|unknown command/i.test(formatReason(cause))) return toReadableError(cause);
  return new LockConfigError(
    `minReplicas needs the command WAIT, which this server refuses (${formatReason(cause)}). Allow it with the ACL rule ` +
      `+wait, or leave minReplicas out.`,
    { cause },
  );
}
