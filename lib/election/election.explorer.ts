import { LockConfigError } from '../core/errors.js';
import {
  type DecoratedInstance,
  type ProviderSource,
  findDecoratedInstances,
  scopedProviderError,
} from '../decorators/decorated-instance.explorer.js';
import { describeMethod, readMethodMetadata } from '../decorators/decorated-method.js';
import type { LeaderTerm } from './candidate.js';
import { ELECTION_METADATA, type ElectionMetadata } from './election.options.js';
import type { Elections } from './elections.js';
import { getElectionsPropertyToken } from './leader-election.js';

interface ElectionMethod extends Pick<DecoratedInstance, 'instance' | 'isStatic'> {
  readonly name: string;
  readonly metadata: ElectionMetadata;
}

/**
 * Joins the elections of decorated methods and registers these methods as handlers. Skips instances that are registered
 * already.
 *
 * @throws LockConfigError for `@OnElected` or `@OnRevoked` on a class without exactly one instance, and for different leases
 */
export function registerElections(
  discovery: ProviderSource,
  elections: Elections,
  moduleName: string | undefined,
  registered: WeakSet<object>,
): void {
  const all = [...findElectionMethods(discovery, moduleName, registered)];
  joinWithLeases(all, elections);
  for (const { instance, isStatic, name, metadata } of all) {
    elections.joinForMethod(metadata.name);
    if (metadata.kind === 'only') continue;
    const location = describeMethod(metadata.kind === 'elected' ? 'OnElected' : 'OnRevoked', instance, name);
    if (!isStatic) {
      throw scopedProviderError(location, ', so it is undefined which instance is elected');
    }
    const handler = { location, run: (term: LeaderTerm) => instance[name]?.(term) };
    if (metadata.kind === 'elected') elections.onElected(metadata.name, handler);
    else elections.onRevoked(metadata.name, handler);
  }
}

/** Joins with explicit leases first: methods without one would otherwise fix the default. */
function joinWithLeases(all: readonly ElectionMethod[], elections: Elections): void {
  const given = new Map<string, ElectionMethod>();
  for (const found of all) {
    const { leaseMs, name } = found.metadata;
    if (leaseMs === undefined) continue;
    const other = given.get(name);
    if (other && other.metadata.leaseMs !== leaseMs) throw leaseConflictError(other, found);
    given.set(name, found);
    elections.join(name, { leaseMs });
  }
}

const leaseConflictError = (one: ElectionMethod, other: ElectionMethod) =>
  new LockConfigError(
    `Expected one leaseMs for the election "${one.metadata.name}", got ${one.metadata.leaseMs} from ${describeOnElected(one)} and ` +
      `${other.metadata.leaseMs} from ${describeOnElected(other)}. Set it in one place.`,
  );

const describeOnElected = ({ instance, name }: ElectionMethod) => describeMethod('OnElected', instance, name);

function* findElectionMethods(
  discovery: ProviderSource,
  moduleName: string | undefined,
  registered: WeakSet<object>,
): Generator<ElectionMethod> {
  for (const { instance, isStatic, methods } of findDecoratedInstances(
    discovery,
    getElectionsPropertyToken(moduleName),
  )) {
    // One instance may be provided under several tokens.
    if (registered.has(instance)) continue;
    registered.add(instance);
    for (const { name, method, owner } of methods) {
      const stored = readMethodMetadata<ElectionMetadata>(ELECTION_METADATA, { target: owner, name, method });
      for (const { value: metadata } of stored) {
        if (metadata.service === moduleName) yield { instance, isStatic, name, metadata };
      }
    }
  }
}
