import { expect, it } from 'vitest';
import fc from 'fast-check';
import type { Lock } from '../../lib/core/lock.js';
import type { Locks } from '../../lib/core/locks.js';
import type { AcquireOptions } from '../../lib/core/options.js';
import { lockFixture } from '../unit/core/lock-fixture.js';

const PERMITS = 2;

type Kind = 'permit' | 'read' | 'write' | 'keys';

/** What a process asks for. The keys of `keys` are used for nothing else. */
interface Wanted {
  readonly kind: Kind;
  readonly keys: readonly string[];
  readonly process: 'ours' | 'theirs';
}

type Step =
  | { readonly verb: 'try' | 'wait'; readonly wanted: Wanted }
  | { readonly verb: 'release'; readonly index: number };

const wanted = fc.record<Wanted>({
  kind: fc.constantFrom('permit', 'read', 'read', 'write', 'keys'),
  keys: fc.uniqueArray(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 3 }),
  process: fc.constantFrom('ours', 'theirs'),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ verb: fc.constant('try' as const), wanted }) },
  { weight: 2, arbitrary: fc.record({ verb: fc.constant('wait' as const), wanted }) },
  { weight: 4, arbitrary: fc.record({ verb: fc.constant('release' as const), index: fc.nat(9) }) },
);

interface Held {
  readonly wanted: Wanted;
  readonly lock: Lock;
}

/** What may be held together, in as few words as possible. */
function isFree({ kind, keys }: Wanted, held: readonly Held[]): boolean {
  const count = (...kinds: Kind[]) => held.filter((one) => kinds.includes(one.wanted.kind)).length;
  if (kind === 'permit') return count('permit') < PERMITS;
  if (kind === 'read') return count('write') === 0;
  if (kind === 'write') return count('read', 'write') === 0;
  return !held.some((one) => one.wanted.kind === 'keys' && one.wanted.keys.some((key) => keys.includes(key)));
}

/** Waiters take part in the order of their kind, so a call that does not wait is predicted only without them. */
const concerns = (kind: Kind): readonly Kind[] =>
  kind === 'read' || kind === 'write' ? ['read', 'write'] : [kind];

function callOf({ kind, keys }: Wanted): [string | readonly string[], AcquireOptions] {
  if (kind === 'keys') return [keys, { waitMs: Infinity }];
  if (kind === 'permit') return ['pdf', { permits: PERMITS, waitMs: Infinity }];
  return ['catalog', { mode: kind, waitMs: Infinity }];
}

/** The tokens of what was held, to see that each is larger than those before it. */
class Tokens {
  readonly #newest = new Map<string, bigint>();

  add({ wanted: { kind, keys }, lock }: Held): void {
    if (kind === 'read') return;
    if (kind === 'keys') for (const key of keys) this.#grow(key, lock.fencingTokenOf(key));
    else this.#grow(kind === 'permit' ? `permit ${lock.permit}` : kind, lock.fencingToken);
  }

  #grow(name: string, token: bigint): void {
    expect(token, name).toBeGreaterThan(this.#newest.get(name) ?? 0n);
    this.#newest.set(name, token);
  }
}

/** Plays steps on two processes with one store in memory, and compares them with the model. Returns how many calls had to wait. */
async function play(steps: readonly Step[]): Promise<number> {
  const { ours, theirs, clock } = lockFixture();
  const processes: Record<Wanted['process'], Locks> = { ours, theirs };
  const [held, waiting]: [Held[], Set<Wanted>] = [[], new Set()];
  const tokens = new Tokens();
  let waits = 0;
  const add = (one: Wanted, lock: Lock) => {
    // Several may have been granted in one turn, so each must fit those before it.
    expect(isFree(one, held), JSON.stringify(one)).toBe(true);
    if (one.kind === 'permit') expect(held.map((other) => permitOf(other))).not.toContain(lock.permit);
    tokens.add({ wanted: one, lock });
    held.push({ wanted: one, lock });
  };
  const release = async (index: number) => {
    const [one] = held.splice(index % Math.max(held.length, 1), 1);
    await one?.lock.release();
  };
  for (const current of steps) {
    if (current.verb === 'release') await release(current.index);
    else if (current.verb === 'wait') {
      const one = { ...current.wanted };
      waiting.add(one);
      void processes[one.process].acquire(...callOf(one)).then((lock) => {
        waiting.delete(one);
        add(one, lock);
      });
    } else {
      const kinds = concerns(current.wanted.kind);
      const isPredicted = ![...waiting].some(({ kind }) => kinds.includes(kind));
      const expected = isFree(current.wanted, held);
      const lock = await processes[current.wanted.process].tryAcquire(...callOf(current.wanted));
      if (isPredicted) expect(lock !== null, JSON.stringify(current.wanted)).toBe(expected);
      if (lock) add(current.wanted, lock);
    }
    await clock.advance(20);
    waits = Math.max(waits, waiting.size);
  }
  // Nobody waits for ever.
  for (let rounds = 0; held.length > 0 || waiting.size > 0; rounds += 1) {
    expect(rounds).toBeLessThan(200);
    await release(0);
    await clock.advance(500);
  }
  await Promise.all([ours.close(), theirs.close()]);
  return waits;
}

const permitOf = ({ wanted: { kind }, lock }: Held) => (kind === 'permit' ? lock.permit : -1);

it('permits, read and write locks and several keys do what a list of what is held says', async () => {
  let [plays, playsThatWaited] = [0, 0];
  const property = fc.asyncProperty(
    fc.array(step, { minLength: 1, maxLength: 25, size: 'max' }),
    async (steps) => {
      plays += 1;
      if ((await play(steps)) > 0) playsThatWaited += 1;
    },
  );
  await fc.assert(property, { numRuns: 300, seed: 1 });
  expect(playsThatWaited).toBeGreaterThan(plays / 4);
}, 120_000);
