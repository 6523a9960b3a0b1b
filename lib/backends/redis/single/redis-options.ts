import { OptionErrors } from '../../../core/option-errors.js';
import {
  DEFAULT_TOKEN_MEMORY_MS,
  TOKEN_MEMORY_OPTION,
  type TokenMemoryOptions,
  collectTokenMemoryErrors,
} from '../../../core/token-memory-options.js';
import { type RedisSource, isCluster, keyPrefixOf } from '../redis-source.js';
import { collectSourceErrors, isClient, sourceOf } from '../source-check.js';
import { slotOf } from './cluster-slots.js';
import type { ReplicaOptions } from './replica-acknowledgement.js';

/** How to connect to Redis, how many replicas must acknowledge a grant, and for how long an unused key is remembered. */
export type RedisBackendOptions = RedisSource & ReplicaOptions & TokenMemoryOptions;

export interface ResolvedRedisOptions extends ReplicaOptions, Required<TokenMemoryOptions> {
  readonly source: RedisSource;
}

const REPLICA_OPTIONS = ['minReplicas', 'replicaTimeoutMs'] as const;
/** The core waits no longer than this for any result. */
const MAX_REPLICA_TIMEOUT_MS = 5_000;

/** @throws LockConfigError that names every wrong option */
export function resolveRedisOptions(options: RedisBackendOptions): ResolvedRedisOptions {
  const errors = new OptionErrors();
  const expected = 'exactly one of { client }, { url } and { options }';
  const given = collectSourceErrors(errors, options, {
    path: 'the argument',
    expected,
    call: 'redisBackend',
    otherOptions: [...REPLICA_OPTIONS, TOKEN_MEMORY_OPTION],
  });
  collectReplicaErrors(given, errors);
  collectTokenMemoryErrors(errors, given[TOKEN_MEMORY_OPTION]);
  collectSlotErrors(given, errors);
  errors.throwIfAny('Wrong redisBackend() options');
  const { minReplicas, replicaTimeoutMs, tokenMemoryMs = DEFAULT_TOKEN_MEMORY_MS } = options;
  return {
    source: sourceOf(options),
    ...(minReplicas !== undefined && { minReplicas }),
    ...(replicaTimeoutMs !== undefined && { replicaTimeoutMs }),
    tokenMemoryMs,
  };
}

/** In a Cluster, all keys of a script call must be on one slot. An empty hash tag in the prefix hides that of our keys. */
function collectSlotErrors({ client }: Readonly<Record<string, unknown>>, errors: OptionErrors): void {
  if (!isClient(client) || !isCluster(client)) return;
  const [slot, other] = ['a', 'b'].map((name) => slotOf(`${keyPrefixOf({ client })}{key}:${name}`));
  if (slot !== other) errors.add(`expected the keyPrefix of the Cluster client to have no '{}'`);
}

function collectReplicaErrors(given: Readonly<Record<string, unknown>>, errors: OptionErrors): void {
  const { client, minReplicas, replicaTimeoutMs } = given;
  const isCount = Number.isInteger(minReplicas) && (minReplicas as number) >= 1;
  errors.expect('minReplicas', minReplicas, 'a whole number of replicas, at least 1', isCount);
  errors.integerMs('replicaTimeoutMs', replicaTimeoutMs, { min: 1, max: MAX_REPLICA_TIMEOUT_MS });
  if (minReplicas === undefined && replicaTimeoutMs !== undefined) {
    errors.add(
      'expected minReplicas together with replicaTimeoutMs, which limits the wait for these replicas',
    );
  }
  if (minReplicas !== undefined && isClient(client) && isCluster(client)) {
    errors.add(
      `expected no minReplicas with a Cluster client, which cannot send WAIT to the node of a key; set ` +
        `min-replicas-to-write in the configuration of the nodes instead`,
    );
  }
}
