import { LockConfigError } from '../core/errors.js';
import { describeMethod, scopedProviderError } from '../decorators/decorated-method.js';
import { type FoundMethod, type ProviderSource, findMethods } from '../decorators/find-methods.js';
import type { LeaderTerm } from './candidate.interface.js';
import { ELECTION_METADATA, type ElectionMetadata } from './election.decorators.js';
import type { Elections } from './elections.js';
import { getElectionsPropertyToken } from './leader-election.service.js';

type ElectionMethod = Omit<FoundMethod<ElectionMetadata>, 'metadata'> & {
  readonly metadata: ElectionMetadata;
};

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
  const token = getElectionsPropertyToken(moduleName);
  const search = { token, key: ELECTION_METADATA, visited: registered };
  const all = [...findMethods<ElectionMetadata>(discovery, search)].flatMap((found) =>
    found.metadata
      .filter(({ value }) => value.service === moduleName)
      .map(({ value }): ElectionMethod => ({ ...found, metadata: value })),
  );
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
