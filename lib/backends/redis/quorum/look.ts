import type { LockRecord } from '../../../core/backend.js';
import { NO_BALLOT } from './node-call.js';
import { type Ask, Round } from './round.js';
import type { Voter } from './voter.js';
import type { Voters } from './voters.js';

type IsEnough = (answers: readonly string[]) => boolean;

/** A question about one key, whose answer is what a majority says, each by itself. */
class Question implements Ask {
  readonly answers: string[] = [];
  readonly key: string;
  readonly holder: string;
  readonly terms: string;
  readonly servers: number;
  readonly #isEnough: IsEnough;

  constructor(request: { key: string; holder: string; terms: string }, servers: number, isEnough: IsEnough) {
    this.key = request.key;
    this.holder = request.holder;
    this.terms = request.terms;
    this.servers = servers;
    this.#isEnough = isEnough;
  }

  get isSettled(): boolean {
    return this.#isEnough(this.answers);
  }

  hear(_voter: Voter, told: string): void {
    this.answers.push(told);
  }

  hearAside(): void {
    // It has no vote.
  }

  hearNothing(): void {
    // The others may do.
  }
}

/** Who holds the key on a majority of the servers. */
export async function inspect(voters: Voters, key: string, limitMs: number): Promise<LockRecord | null> {
  const { needed, spare } = voters;
  const isEnough = (answers: readonly string[]) =>
    leaderOf(answers).length >= needed || answers.filter((answer) => answer === 'free').length > spare;
  const answers = await ask(
    voters,
    new Question({ key, holder: '', terms: 'inspect' }, voters.everyone, isEnough),
    limitMs,
  );
  const held = leaderOf(answers);
  return held.length >= needed ? recordFrom(held, spare) : null;
}

/** Frees the key, if a majority holds it by this fencing token. */
export async function forceRelease(
  voters: Voters,
  key: string,
  token: bigint,
  limitMs: number,
): Promise<boolean> {
  const { needed, spare } = voters;
  const isReleased = (answer: string) => answer.startsWith('released');
  const isEnough = (answers: readonly string[]) =>
    answers.filter(isReleased).length >= needed ||
    answers.filter((answer) => !isReleased(answer)).length > spare;
  const question = new Question(
    { key, holder: String(token), terms: 'forceRelease' },
    voters.everyone,
    isEnough,
  );
  return (await ask(voters, question, limitMs)).filter(isReleased).length >= needed;
}

async function ask(voters: Voters, question: Question, limitMs: number): Promise<readonly string[]> {
  const round = new Round({ voters, asks: [question], ballot: NO_BALLOT, limitMs });
  await round.over;
  if (!question.isSettled && question.answers.length < voters.needed) throw voters.doubt(limitMs).cause;
  return question.answers;
}

/** What those said who name the holder that most of them name. */
function leaderOf(answers: readonly string[]): readonly string[] {
  const byHolder = new Map<string, string[]>();
  for (const answer of answers) {
    const [kind, , holder] = answer.split(' ');
    if (kind !== 'held' || holder === undefined) continue;
    byHolder.set(holder, [...(byHolder.get(holder) ?? []), answer]);
  }
  return [...byHolder.values()].sort((one, other) => other.length - one.length)[0] ?? [];
}

/** `held remainingMs holder token sinceUs instance`, told by a majority. It is held for as long as a majority says so. */
function recordFrom(held: readonly string[], spare: number): LockRecord {
  const leases = held.map((answer) => Number(answer.split(' ')[1])).sort((one, other) => one - other);
  const [, , holder = '', token = '', sinceUs, ...instance] = (held[0] ?? '').split(' ');
  return {
    holder,
    instance: instance.join(' '),
    fencingToken: BigInt(token),
    sinceMs: Math.floor(Number(sinceUs) / 1_000),
    remainingMs: leases[Math.max(held.length - spare - 1, 0)] ?? 0,
  };
}
