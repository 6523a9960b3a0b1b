import { type ScriptRunner, evaluate, scriptOf } from '../script-runner.js';
import { NODE_LUA } from './node-lua.js';

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
  /** The latest time of the server in µs at which the call is still wanted; 0: any. */
  readonly notAfterUs: number;
  /** How far a ballot may lie from the clock of the server. */
  readonly boundUs: number;
  readonly channel: string;
}

/** Requests that go to several servers as they are. */
export class NodeCall {
  readonly #keys: readonly string[];
  readonly #rows: string[] = [];
  readonly #ballot: Ballot;

  constructor(requests: readonly NodeRequest[], ballot = NO_BALLOT) {
    this.#keys = requests.map(({ key }) => voteKeyOf(key));
    this.#ballot = ballot;
    this.#addRows(requests);
  }

  /** Answers the server's time in µs, then a text for each request. */
  run(runner: ScriptRunner, { notAfterUs, boundUs, channel }: Circumstances): Promise<readonly string[]> {
    const { us, firstUs, isRaised } = this.#ballot;
    const about = [
      notAfterUs.toFixed(0),
      wide(us),
      wide(firstUs),
      String(boundUs),
      isRaised ? '1' : '0',
      channel,
    ];
    const words = [...this.#keys, ...about, ...this.#rows];
    return evaluate(runner, SCRIPT, this.#keys.length, words) as Promise<readonly string[]>;
  }

  /** Neighbours with the same terms share them. */
  #addRows(requests: readonly NodeRequest[]): void {
    const words = this.#rows;
    let shared: NodeRequest['terms'] | undefined;
    let countAt = 0;
    let count = 0;
    for (const { terms, holder } of requests) {
      if (terms !== shared) {
        shared = terms;
        count = 0;
        countAt = words.length + 1;
        words.push(...columnsOf(terms, this.#ballot));
      }
      count += 1;
      words[countAt] = String(count);
      words.push(holder);
    }
  }
}

const NEVER = '0'.repeat(16);
const NO_TICK = ' '.repeat(16);

function columnsOf(terms: NodeRequest['terms'], { us, firstUs }: Ballot): readonly string[] {
  if (typeof terms === 'string') {
    const at = terms.indexOf(' ');
    return at === -1 ? [terms, '0', ''] : [terms.slice(0, at), '0', terms.slice(at + 1)];
  }
  const { leaseMs, memoryMs, againWithinMs, tokenCount, instance } = terms;
  const before = `0 ${wide(us + tokenCount - 1)} `;
  const between = ` ${wide(us)} ${NEVER} ${NO_TICK} ${NEVER} `;
  const behind = ` ${wide(firstUs)} - - ${instance}`;
  return ['acquire', '0', `${leaseMs}`, `${memoryMs}`, `${againWithinMs}`, before, between, behind];
}

const VOTE_SUFFIX = '}:vote';

/** Not that of a lock in one Redis, which is another text: a server may have served for that before. */
const voteKeyOf = (key: string) => `{${key}${VOTE_SUFFIX}`;

/** The key of a lock, from what its vote is called in the server. */
export const keyFrom = (voteKey: string, keyPrefix: string) =>
  voteKey.slice(keyPrefix.length + 1, -VOTE_SUFFIX.length);

/** Numbers that are compared as text are of one width. */
export const wide = (number: number) => number.toFixed(0).padStart(16, '0');
