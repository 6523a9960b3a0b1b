import { addRows } from '../rows.js';
import { type ScriptRunner, evaluate, scriptOf } from '../script-runner.js';
import { FOREVER, NEVER, NODE_LUA, NO_TICK } from './node-lua.js';

const SCRIPT = scriptOf(NODE_LUA);
const FOREVER_US = Number(FOREVER);

/** One request to a server. */
export interface NodeRequest {
  readonly key: string;
  readonly holder: string;
  /** A verb of the script and what it needs to know. */
  readonly terms: string | AcquireTerms;
}

/** What is asked of nearly all, so that the server is spared the reading of it. */
export interface AcquireTerms {
  readonly leaseMs: number;
  /** How long the tokens of the key are remembered. */
  readonly memoryMs: number;
  readonly againWithinMs: number;
  readonly tokenCount: number;
  readonly instance: string;
}

/** With what the locks of a call are asked for. */
export interface Ballot {
  /** The fencing token that is wanted: µs of the servers' clocks, or a little more. */
  readonly us: number;
  /** The first one of the same question, by which askers who divide the votes see who came first. */
  readonly firstUs: number;
  /** Votes that an asker has already are raised to it. */
  readonly isRaised: boolean;
}

/** For calls that ask for no lock. */
export const NO_BALLOT: Ballot = { us: 0, firstUs: 0, isRaised: false };

/** No call is worth an answer for longer, so none that was lost takes effect later than that. */
export const LONGEST_CALL_MS = 500;

/** The terms of a release that is surely within the lease. */
export const SURE_RELEASE = 'release sure';

/** What differs from server to server. */
interface Circumstances {
  /** The latest time of the server in µs at which the call is still wanted. */
  readonly notAfterUs: number;
  /** How far a ballot may lie from the clock of the server. */
  readonly boundUs: number;
  readonly channel: string;
}

/** What a server says. */
export interface Told {
  /** Its time in µs, or 0 where it did not look at its clock. */
  readonly timeUs: number;
  /** In the order of the requests. */
  readonly answers: readonly string[];
}

/** Requests that go to several servers as they are. */
export class NodeCall {
  readonly #keys: readonly string[];
  readonly #ballot: BallotText;
  readonly #form: 'acquire alone' | 'release alone' | 'rows';
  readonly #rows: readonly string[];

  constructor(requests: readonly NodeRequest[], ballot = NO_BALLOT) {
    const [only] = requests;
    const isAlone = only !== undefined && requests.length === 1;
    this.#ballot = new BallotText(ballot);
    this.#keys = isAlone ? [voteKeyOf(only.key)] : requests.map(({ key }) => voteKeyOf(key));
    const wordsAlone = isAlone ? aloneOf(only, this.#ballot) : undefined;
    if (!wordsAlone) this.#form = 'rows';
    else this.#form = only?.terms === SURE_RELEASE ? 'release alone' : 'acquire alone';
    this.#rows = wordsAlone ?? rowsOf(requests, this.#ballot);
  }

  /** Rejects also if something else than our script answers: what stands between us and a server may do so. */
  run(runner: ScriptRunner, circumstances: Circumstances): Promise<Told> {
    const isRelease = this.#form === 'release alone';
    const about = isRelease ? circumstances.channel : this.#ballot.within(circumstances);
    const words = [...this.#keys, about, ...this.#rows];
    return evaluate(runner, SCRIPT, this.#keys.length, words).then(this.#read);
  }

  readonly #read = (reply: unknown): Told => {
    if (Array.isArray(reply)) {
      const [time, ...answers] = reply as readonly unknown[];
      const timeUs = Number(time);
      const isComplete = answers.length === this.#keys.length && answers.every(isText);
      if (timeUs > 0 && isComplete) return { timeUs, answers };
    } else if (this.#form === 'release alone' && reply === 'released') return RELEASED;
    else if (this.#form === 'acquire alone' && isText(reply) && IS_TIME.test(reply))
      return { timeUs: Number(reply), answers: GRANTED };
    throw new Error('its answer is not that of our script');
  };
}

/** A ballot as the servers are told of it. */
class BallotText {
  readonly #ballot: Ballot;
  readonly token: string;
  readonly first: string;
  #earliest: string | undefined;

  constructor(ballot: Ballot) {
    const { us, firstUs } = ballot;
    this.#ballot = ballot;
    this.token = us === 0 ? NEVER : wide(us);
    this.first = firstUs === us ? this.token : wide(firstUs);
  }

  get isRaised(): boolean {
    return this.#ballot.isRaised;
  }

  /** The last one of so many tokens. */
  last(count: number): string {
    return count === 1 ? this.token : wide(this.#ballot.us + count - 1);
  }

  within({ notAfterUs, boundUs, channel }: Circumstances): string {
    const { us, isRaised } = this.#ballot;
    this.#earliest ??= us > boundUs ? wide(us - boundUs) : NEVER;
    const latestUs = us === 0 ? notAfterUs : Math.min(notAfterUs, us + boundUs);
    const latest = latestUs < FOREVER_US ? wide(latestUs) : FOREVER;
    return `${this.#earliest} ${latest} ${this.token} ${this.first} ${isRaised ? 1 : 0} ${channel}`;
  }
}

const RELEASED: Told = { timeUs: 0, answers: ['released'] };
const GRANTED = ['granted'] as const;
const IS_TIME = /^\d{16}$/;

const isText = (answer: unknown): answer is string => typeof answer === 'string';

function rowsOf(requests: readonly NodeRequest[], ballot: BallotText): readonly string[] {
  const words: string[] = [];
  addRows(words, requests, (terms) => headOf(terms, ballot));
  return words;
}

/** For what is asked most often there are fewer words. */
function aloneOf({ holder, terms }: NodeRequest, ballot: BallotText): readonly string[] | undefined {
  if (terms === SURE_RELEASE) return [`${HELD} ${holder} `];
  if (typeof terms === 'string' || ballot.isRaised) return undefined;
  const [before, between, behind] = piecesOf(terms, ballot);
  return [`${terms.memoryMs}`, `${terms.againWithinMs}`, before, between + holder + behind];
}

function headOf(terms: NodeRequest['terms'], ballot: BallotText): readonly string[] {
  if (typeof terms === 'string') {
    const at = terms.indexOf(' ');
    return at === -1 ? [terms, '0', ''] : [terms.slice(0, at), '0', terms.slice(at + 1)];
  }
  return ['acquire', '0', `${terms.memoryMs}`, `${terms.againWithinMs}`, ...piecesOf(terms, ballot)];
}

/** In a lock that nobody waits for, before the holder. */
const HELD = `0 ${NEVER}`;

/** Of a lock: what stands before the time of the grant, between that and the holder, and behind him. */
function piecesOf({ leaseMs, tokenCount, instance }: AcquireTerms, ballot: BallotText) {
  return [
    `${ballot.last(tokenCount)} ${NO_TICK} ${NEVER} ${ballot.token} `,
    ` ${wide(leaseMs * 1_000)} ${HELD} `,
    ` ${ballot.first} - - ${instance}`,
  ] as const;
}

/** To hold a lock that other servers have granted. */
export function rejoinTerms(holder: string, terms: AcquireTerms, ballot: Ballot): string {
  const [before, between, behind] = piecesOf(terms, new BallotText(ballot));
  return `rejoin ${terms.leaseMs} ${terms.memoryMs} ${before}${NEVER}${between}${holder}${behind}`;
}

/** For so many whole ms a lock is still held: it is to end everywhere at the same time, more or less. */
export const leftOf = (leaseMs: number, passedMs: number) => Math.max(Math.ceil(leaseMs - passedMs), 1);

const VOTE_SUFFIX = '}:vote';

/** Not that of a lock in one Redis, which is another text: a server may have served for that before. */
const voteKeyOf = (key: string) => `{${key}${VOTE_SUFFIX}`;

/** The key of a lock, from what its vote is called in the server. */
export const keyFrom = (voteKey: string, keyPrefix: string) =>
  voteKey.slice(keyPrefix.length + 1, -VOTE_SUFFIX.length);

/** Numbers that are compared as text are of one width. */
export const wide = (number: number) => String(Math.floor(number)).padStart(16, '0');
