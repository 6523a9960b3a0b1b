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
  readonly #isSureRelease: boolean;
  readonly #rows: readonly string[];

  constructor(requests: readonly NodeRequest[], ballot = NO_BALLOT) {
    const [only] = requests;
    const isAlone = only !== undefined && requests.length === 1;
    this.#ballot = new BallotText(ballot);
    this.#keys = isAlone ? [voteKeyOf(only.key)] : requests.map(({ key }) => voteKeyOf(key));
    this.#isSureRelease = isAlone && only.terms === SURE_RELEASE;
    this.#rows = (isAlone ? wordsAlone(only, this.#ballot) : undefined) ?? rowsOf(requests, this.#ballot);
  }

  /** Rejects also if something else than our script answers: what stands between us and a server may do so. */
  run(runner: ScriptRunner, circumstances: Circumstances): Promise<Told> {
    const about = this.#isSureRelease ? circumstances.channel : this.#ballot.within(circumstances);
    const words = [...this.#keys, about, ...this.#rows];
    return evaluate(runner, SCRIPT, this.#keys.length, words).then(toldFrom);
  }
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

function toldFrom(reply: unknown): Told {
  if (reply === 'released') return { timeUs: 0, answers: RELEASED };
  if (Array.isArray(reply)) {
    const [time, ...answers] = reply as readonly unknown[];
    const timeUs = Number(time);
    if (timeUs > 0 && answers.every((answer) => typeof answer === 'string')) return { timeUs, answers };
  } else {
    const timeUs = Number(reply);
    if (timeUs > 0) return { timeUs, answers: GRANTED };
  }
  throw new Error('its answer is not that of our script');
}

const RELEASED = ['released'] as const;
const GRANTED = ['granted'] as const;

function rowsOf(requests: readonly NodeRequest[], ballot: BallotText): readonly string[] {
  const words: string[] = [];
  addRows(words, requests, (terms) => headOf(terms, ballot));
  return words;
}

/** For what is asked most often there are fewer words. */
function wordsAlone({ holder, terms }: NodeRequest, ballot: BallotText): readonly string[] | undefined {
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

const VOTE_SUFFIX = '}:vote';

/** Not that of a lock in one Redis, which is another text: a server may have served for that before. */
const voteKeyOf = (key: string) => `{${key}${VOTE_SUFFIX}`;

/** The key of a lock, from what its vote is called in the server. */
export const keyFrom = (voteKey: string, keyPrefix: string) =>
  voteKey.slice(keyPrefix.length + 1, -VOTE_SUFFIX.length);

/** Numbers that are compared as text are of one width. */
export function wide(number: number): string {
  const digits = String(Math.floor(number));
  return digits.length === 16 ? digits : digits.padStart(16, '0');
}
