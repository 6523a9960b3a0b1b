import { LockConfigError } from '../core/errors.js';
import { placeOf } from '../decorators/method-place.js';
import { type Explored, type Seated, findSeated } from '../decorators/seated.explorer.js';
import type { LeaderTerm } from './candidate.js';
import type { Elections } from './elections.js';
import { electionsSeat } from './leader-election.js';
import { type ElectionMark, marksOf } from './marks.js';

interface Found extends Pick<Seated, 'instance' | 'isStatic'> {
  readonly name: string;
  readonly mark: ElectionMark;
}

/**
 * Joins the elections that decorated methods take part in, and makes those methods known. Leaves out the instances that are
 * done.
 *
 * @throws LockConfigError for `@OnElected` or `@OnRevoked` where nobody could say on which instance to call it
 */
export function registerElections(
  discovery: Explored,
  elections: Elections,
  moduleName: string | undefined,
  done: WeakSet<object>,
): void {
  const all = [...findMarked(discovery, moduleName, done)];
  joinWithLeases(all, elections);
  for (const { instance, isStatic, name, mark } of all) {
    elections.joinForMethod(mark.name);
    if (mark.when === 'only') continue;
    const place = placeOf(mark.when === 'elected' ? 'OnElected' : 'OnRevoked', instance, name);
    if (!isStatic) throw neverRuns(place);
    const handler = { place, run: (term: LeaderTerm) => instance[name]?.(term) };
    if (mark.when === 'elected') elections.onElected(mark.name, handler);
    else elections.onRevoked(mark.name, handler);
  }
}

/** Before those that give no lease, which would take the default. */
function joinWithLeases(all: readonly Found[], elections: Elections): void {
  const given = new Map<string, Found>();
  for (const found of all) {
    const { leaseMs, name } = found.mark;
    if (leaseMs === undefined) continue;
    const other = given.get(name);
    if (other && other.mark.leaseMs !== leaseMs) throw twoLeases(other, found);
    given.set(name, found);
    elections.join(name, { leaseMs });
  }
}

const twoLeases = (one: Found, other: Found) =>
  new LockConfigError(
    `Expected one leaseMs for the election "${one.mark.name}", got ${one.mark.leaseMs} from ${placeOfElected(one)} and ` +
      `${other.mark.leaseMs} from ${placeOfElected(other)}. Give it in one place.`,
  );

const placeOfElected = ({ instance, name }: Found) => placeOf('OnElected', instance, name);

function* findMarked(
  discovery: Explored,
  moduleName: string | undefined,
  done: WeakSet<object>,
): Generator<Found> {
  for (const { instance, isStatic, methods } of findSeated(discovery, electionsSeat(moduleName))) {
    // One instance may be provided under several tokens.
    if (done.has(instance)) continue;
    done.add(instance);
    for (const { name, method, owner } of methods) {
      for (const mark of marksOf(method, { target: owner, name })) {
        if (mark.service === moduleName) yield { instance, isStatic, name, mark };
      }
    }
  }
}

const neverRuns = (place: string) =>
  new LockConfigError(
    `${place}: expected a provider that Nest makes once, got one that is request-scoped or transient, of which nobody ` +
      `could say which instance is elected. Move the method to a provider of its own.`,
  );
