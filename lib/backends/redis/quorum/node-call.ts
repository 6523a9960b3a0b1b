import { type ScriptRunner, evaluate, scriptOf } from '../script-runner.js';
import { NEVER, NODE_LUA, NO_TICK } from './node-lua.js';

const SCRIPT = scriptOf(NODE_LUA);

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

/** What differs from server to server. */
interface Circumstances {
  /** The latest time of the server in µs at which the call is still wanted. */
  readonly notAfterUs: number;
  /** How far a ballot may lie from the clock of the server. */
  readonly boundUs: number;
  readonly channel: string;
}

/**
 * The server's time in µs, or 0 where it did not look at its clock; then a text for each request. A client may have been told
 * to give numbers as text.
 */
export type Told = readonly [timeUs: number | string, ...answers: string[]];

/** Requests that go to several servers as they are. */
export class NodeCall {
  readonly #keys: readonly string[];
  readonly #ballot: Ballot;
  /** The ballot, and what else goes for all of them. */
  readonly #ballotText: string;
  readonly #rows: readonly string[];

  constructor(requests: readonly NodeRequest[], ballot = NO_BALLOT) {
    this.#keys = requests.map(({ key }) => voteKeyOf(key));
    this.#ballot = ballot;
    this.#ballotText = `${wide(ballot.us)} ${wide(ballot.firstUs)} ${ballot.isRaised ? 1 : 0}`;
    const [only] = requests;
    const alone = only && requests.length === 1 ? wordsAlone(only, ballot) : undefined;
    this.#rows = alone ?? rowsOf(requests, ballot);
  }

  run(runner: ScriptRunner, { notAfterUs, boundUs, channel }: Circumstances): Promise<Told> {
    const { us } = this.#ballot;
    const earliestUs = Math.max(us - boundUs, 0);
    const latestUs = Math.min(notAfterUs, us > 0 ? us + boundUs : Infinity, FOREVER_US);
    const about = `${wide(earliestUs)} ${wide(latestUs)} ${this.#ballotText} ${channel}`;
    const words = [...this.#keys, about, ...this.#rows];
    return evaluate(runner, SCRIPT, this.#keys.length, words) as Promise<Told>;
  }
}

/** Neighbours with the same terms share them. */
function rowsOf(requests: readonly NodeRequest[], ballot: Ballot): readonly string[] {
  const words: string[] = [];
  let shared: NodeRequest['terms'] | undefined;
  let countAt = 0;
  let count = 0;
  for (const { terms, holder } of requests) {
    if (terms !== shared) {
      shared = terms;
      count = 0;
      countAt = words.length + 1;
      words.push(...columnsOf(terms, ballot));
    }
    count += 1;
    words[countAt] = String(count);
    words.push(holder);
  }
  return words;
}

/** For what is asked most often there are fewer words. */
function wordsAlone({ holder, terms }: NodeRequest, ballot: Ballot): readonly string[] | undefined {
  if (terms === SURE_RELEASE) return [holder];
  if (typeof terms === 'string' || ballot.isRaised) return undefined;
  const { leaseMs, memoryMs, againWithinMs } = terms;
  const [before, between, behind] = piecesOf(terms, ballot);
  return [`${againWithinMs}`, `${leaseMs}`, `${memoryMs}`, before, `${between}${holder}${behind}`];
}

/** The terms of a release that is surely within the lease. */
export const SURE_RELEASE = 'release sure';
/** 16 digits. */
const FOREVER_US = 9e15;
function columnsOf(terms: NodeRequest['terms'], ballot: Ballot): readonly string[] {
  if (typeof terms === 'string') {
    const at = terms.indexOf(' ');
    return at === -1 ? [terms, '0', ''] : [terms.slice(0, at), '0', terms.slice(at + 1)];
  }
  const { leaseMs, memoryMs, againWithinMs } = terms;
  return ['acquire', '0', `${leaseMs}`, `${memoryMs}`, `${againWithinMs}`, ...piecesOf(terms, ballot)];
}

/** Of a lock: what stands before the end of the lease, between that and the holder, and behind him. */
function piecesOf({ tokenCount, instance }: AcquireTerms, { us, firstUs }: Ballot) {
  const token = wide(us);
  const last = tokenCount === 1 ? token : wide(us + tokenCount - 1);
  const first = firstUs === us ? token : wide(firstUs);
  return [`0 ${last} `, ` ${token} ${NEVER} ${NO_TICK} ${NEVER} `, ` ${first} - - ${instance}`] as const;
}

/** To hold a lock that other servers have granted. */
export function rejoinTerms(holder: string, terms: AcquireTerms, ballot: Ballot): string {
  const [before, between, behind] = piecesOf(terms, ballot);
  return `rejoin ${terms.leaseMs} ${terms.memoryMs} ${before}${NEVER}${between}${holder}${behind}`;
}

const VOTE_SUFFIX = '}:vote';

/** Not that of a lock in one Redis, which is another text: a server may have served for that before. */
const voteKeyOf = (key: string) => `{${key}${VOTE_SUFFIX}`;

/** The key of a lock, from what its vote is called in the server. */
export const keyFrom = (voteKey: string, keyPrefix: string) =>
  voteKey.slice(keyPrefix.length + 1, -VOTE_SUFFIX.length);

/** Numbers that are compared as text are of one width. */
export const wide = (number: number) => String(Math.floor(number)).padStart(16, '0');
