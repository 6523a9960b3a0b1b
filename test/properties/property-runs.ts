import fc from 'fast-check';

/** What somebody asks of a store. Keys and holders are numbers of the play. */
export type Operation =
  | {
      readonly verb: 'acquire';
      readonly key: number;
      readonly who: number;
      readonly leaseMs: number;
      readonly tokenCount: number;
      readonly retryWithinMs: number | undefined;
    }
  | {
      readonly verb: 'renew';
      readonly key: number;
      readonly who: number;
      readonly leaseMs: number;
      readonly moreTokens: number | undefined;
    }
  | { readonly verb: 'release' | 'finish'; readonly key: number; readonly who: number }
  | {
      readonly verb: 'claim';
      readonly key: number;
      readonly who: number;
      readonly leaseMs: number;
      /** From the beginning of the play. */
      readonly tickInMs: number;
      readonly maxAttempts: number;
    }
  | { readonly verb: 'inspect' | 'forget' | 'readTicks' | 'registerTicks'; readonly key: number }
  | { readonly verb: 'pause' | 'resume'; readonly key: number }
  | { readonly verb: 'forceRelease'; readonly key: number; readonly by: TokenOf };

/**
 * A token of the newest grant: its first, the first of its newest block, its last, or one beside them. Not one between two
 * blocks, which nobody was given: how many those are depends on the clock of each store.
 */
export type TokenOf = 'before' | 'first' | 'newest' | 'last' | 'after';

/** What is asked at one moment, no key twice. */
type Step = readonly Operation[];
export type PropertyRun = readonly Step[];

export interface PropertyRunConfig {
  readonly leasesMs: readonly number[];
  /** How long a place in line is kept; none for a store whose line is not looked at. */
  readonly queueTimesMs: readonly number[];
  /** How many more tokens are asked for, if any: none of a store that never gives more. */
  readonly moreTokens: readonly number[];
}

const LOCKS = [0, 1];
/** A job's key: locks and jobs never share one. */
const JOB = 2;
const HOUR_MS = 3_600_000;
/** The rest is claimed in the course of the play. */
const TICKS_IN_MS = [0, 1, 2, 3, -10 * HOUR_MS, 10 * HOUR_MS];
const MAX_STEPS = 25;

export const MAX_EARLY_MS = HOUR_MS;
export const STALE_AFTER_MS = HOUR_MS;

/** Sequences of what may be asked of a backend. */
export function propertyRuns({
  leasesMs,
  queueTimesMs,
  ...config
}: PropertyRunConfig): fc.Arbitrary<PropertyRun> {
  const who = fc.integer({ min: 0, max: 3 });
  const key = fc.constantFrom(...LOCKS);
  const leaseMs = fc.constantFrom(...leasesMs);
  const retryWithinMs = fc.constantFrom(undefined, ...queueTimesMs);
  const tokenCount = fc.constantFrom(1, 3, 64);
  const moreTokens = fc.constantFrom(undefined, undefined, ...config.moreTokens);
  const acquire = fc.record({
    verb: fc.constant('acquire' as const),
    ...{ key, who, leaseMs, tokenCount, retryWithinMs },
  });
  const renew = fc.record({ verb: fc.constant('renew' as const), key, who, leaseMs, moreTokens });
  const release = fc.record({ verb: fc.constant('release' as const), key, who });
  const claim = fc.record({
    verb: fc.constant('claim' as const),
    key: fc.constant(JOB),
    ...{ who, leaseMs },
    tickInMs: fc.constantFrom(...TICKS_IN_MS),
    maxAttempts: fc.integer({ min: 1, max: 3 }),
  });
  const ofJob = fc.record({
    verb: fc.constantFrom('finish' as const, 'release' as const),
    key: fc.constant(JOB),
    who,
  });
  const inspectOrForget = fc.record({ verb: fc.constantFrom('inspect' as const, 'forget' as const), key });
  const readOrRegister = fc.record({
    verb: fc.constantFrom('readTicks' as const, 'registerTicks' as const),
    key: fc.constant(JOB),
  });
  const pauseOrResume = fc.record({
    verb: fc.constantFrom('pause' as const, 'resume' as const, 'resume' as const),
    key: fc.constant(JOB),
  });
  const force = fc.record({
    verb: fc.constant('forceRelease' as const),
    key,
    by: fc.constantFrom<TokenOf[]>('before', 'first', 'newest', 'last', 'after'),
  });
  const operation = fc.oneof(
    { arbitrary: acquire, weight: 6 },
    { arbitrary: release, weight: 4 },
    { arbitrary: renew, weight: 3 },
    { arbitrary: claim, weight: 3 },
    { arbitrary: ofJob, weight: 2 },
    { arbitrary: inspectOrForget, weight: 1 },
    { arbitrary: readOrRegister, weight: 1 },
    { arbitrary: pauseOrResume, weight: 1 },
    { arbitrary: force, weight: 1 },
  );
  const step = fc.uniqueArray(operation, { minLength: 1, maxLength: 3, selector: (one) => one.key });
  return fc.array(step, { minLength: 1, maxLength: MAX_STEPS, size: 'max' });
}
