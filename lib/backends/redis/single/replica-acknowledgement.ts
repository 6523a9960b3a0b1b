import { type UnknownResult, unknownResult } from '../../../core/unknown-result.js';
import { LockConfigError } from '../../../core/errors.js';
import { formatReason } from '../../../core/format.js';
import { type ServerClient, toReadableError } from '../connection.js';
import type { ScriptRunner } from '../script-runner.js';
import type { ScriptRequest } from './commands.js';

export interface ReplicaOptions {
  /**
   * How many replicas must acknowledge a grant or a renewal before it counts. With fewer, the grant is withdrawn. So a
   * failover rarely loses a grant. But it still can, if a replica is promoted that has not received the grant, or if
   * the replica that has received it restarts before. So this does not replace fencing tokens.
   *
   * It costs one more round trip, between the servers, for each grant and renewal. Not for a Cluster.
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
  /** The replies; grants and renewals that too few replicas have acknowledged become unknown results. */
  confirm(replies: readonly string[]): Promise<readonly (string | UnknownResult)[]>;
}

/** Waits until enough replicas have acknowledged a grant or a renewal. */
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
    if (!requests.some(({ command }) => /^(acquire|claim|renew) /.test(command))) return undefined;
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
        const failure = replies.some(mustSurviveFailover) ? await verdict : undefined;
        return failure ? replies.map((reply) => (mustSurviveFailover(reply) ? failure : reply)) : replies;
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

const mustSurviveFailover = (reply: string) => /^(granted|renewed)\b/.test(reply);

function toReplicaError(cause: unknown): unknown {
  if (!/^NOPERM|unknown command/i.test(formatReason(cause))) return toReadableError(cause);
  return new LockConfigError(
    `minReplicas needs the command WAIT, which this server refuses (${formatReason(cause)}). Allow it with the ACL rule ` +
      `+wait, or leave minReplicas out.`,
    { cause },
  );
}
