import { appendRequestRows } from '../request-rows.js';
import { type ScriptRunner, evaluate, scriptOf } from '../script-runner.js';
import { FOREVER, NEVER, VOTE_SCRIPT, NO_TICK } from './vote-script.js';

const SCRIPT = scriptOf(VOTE_SCRIPT);
const FOREVER_US = Number(FOREVER);

/** One request to a server. */
export interface ServerRequest {
  readonly key: string;
  readonly holder: string;
  /** A verb of the script and what it needs to know. */
  readonly command: string | AcquireCommand;
}

/** What is asked of nearly all, so that the server is spared the reading of it. */
export interface AcquireCommand {
  readonly leaseMs: number;
  /** How long the tokens of the key are remembered. */
  readonly memoryMs: number;
  readonly retryWithinMs: number;
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
export const MAX_CALL_MS = 500;

/** The terms of a release that is surely within the lease. */
export const RELEASE_WITHIN_LEASE = 'release sure';

/** What differs from server to server. */
interface CallContext {
  /** The latest time of the server in µs at which the call is still wanted. */
  readonly notAfterUs: number;
  /** How far a ballot may lie from the clock of the server. */
  readonly ballotToleranceUs: number;
  readonly channel: string;
}

/** What a server says. */
export interface CallReply {
  /** Its time in µs, or 0 where it did not look at its clock. */
  readonly timeUs: number;
  /** In the order of the requests. */
  readonly replies: readonly string[];
}

/** Requests that go to several servers as they are. */
export class ServerCall {
  readonly #keys: readonly string[];
  readonly #ballot: EncodedBallot;
  readonly #form: 'acquire alone' | 'release alone' | 'rows';
  readonly #rows: readonly string[];

  constructor(requests: readonly ServerRequest[], ballot = NO_BALLOT) {
    const [only] = requests;
    const isSingle = only !== undefined && requests.length === 1;
    this.#ballot = new EncodedBallot(ballot);
    this.#keys = isSingle ? [voteKeyOf(only.key)] : requests.map(({ key }) => voteKeyOf(key));
    const singleValues = isSingle ? encodeSingle(only, this.#ballot) : undefined;
    if (!singleValues) this.#form = 'rows';
    else this.#form = only?.command === RELEASE_WITHIN_LEASE ? 'release alone' : 'acquire alone';
    this.#rows = singleValues ?? encodeRows(requests, this.#ballot);
  }

  /** Rejects also if something else than our script answers: what stands between us and a server may do so. */
  run(runner: ScriptRunner, context: CallContext): Promise<CallReply> {
    const isRelease = this.#form === 'release alone';
    const header = isRelease ? context.channel : this.#ballot.encodeHeader(context);
    const values = [...this.#keys, header, ...this.#rows];
    return evaluate(runner, SCRIPT, this.#keys.length, values).then(this.#parseReply);
  }

  readonly #parseReply = (reply: unknown): CallReply => {
    if (Array.isArray(reply)) {
      const [time, ...replies] = reply as readonly unknown[];
      const timeUs = Number(time);
      const isComplete = replies.length === this.#keys.length && replies.every(isText);
      if (timeUs > 0 && isComplete) return { timeUs, replies };
    } else if (this.#form === 'release alone' && reply === 'released') return RELEASED;
    else if (this.#form === 'acquire alone' && isText(reply) && IS_TIME.test(reply))
      return { timeUs: Number(reply), replies: GRANTED };
    throw new Error('its answer is not that of our script');
  };
}

/** A ballot as the servers are told of it. */
class EncodedBallot {
  readonly #ballot: Ballot;
  readonly token: string;
  readonly firstToken: string;
  #earliest: string | undefined;

  constructor(ballot: Ballot) {
    const { us, firstUs } = ballot;
    this.#ballot = ballot;
    this.token = us === 0 ? NEVER : fixedWidth(us);
    this.firstToken = firstUs === us ? this.token : fixedWidth(firstUs);
  }

  get isRaised(): boolean {
    return this.#ballot.isRaised;
  }

  /** The last one of so many tokens. */
  lastToken(count: number): string {
    return count === 1 ? this.token : fixedWidth(this.#ballot.us + count - 1);
  }

  encodeHeader({ notAfterUs, ballotToleranceUs, channel }: CallContext): string {
    const { us, isRaised } = this.#ballot;
    this.#earliest ??= us > ballotToleranceUs ? fixedWidth(us - ballotToleranceUs) : NEVER;
    const latestUs = us === 0 ? notAfterUs : Math.min(notAfterUs, us + ballotToleranceUs);
    const latest = latestUs < FOREVER_US ? fixedWidth(latestUs) : FOREVER;
    return `${this.#earliest} ${latest} ${this.token} ${this.firstToken} ${isRaised ? 1 : 0} ${channel}`;
  }
}

const RELEASED: CallReply = { timeUs: 0, replies: ['released'] };
const GRANTED = ['granted'] as const;
const IS_TIME = /^\d{16}$/;

const isText = (reply: unknown): reply is string => typeof reply === 'string';

function encodeRows(requests: readonly ServerRequest[], ballot: EncodedBallot): readonly string[] {
  const values: string[] = [];
  appendRequestRows(values, requests, (command) => encodeRowHead(command, ballot));
  return values;
}

/** For what is asked most often there are fewer words. */
function encodeSingle(
  { holder, command }: ServerRequest,
  ballot: EncodedBallot,
): readonly string[] | undefined {
  if (command === RELEASE_WITHIN_LEASE) return [`${HELD_WITHOUT_WAITERS} ${holder} `];
  if (typeof command === 'string' || ballot.isRaised) return undefined;
  const [before, between, behind] = encodeLockParts(command, ballot);
  return [`${command.memoryMs}`, `${command.retryWithinMs}`, before, between + holder + behind];
}

function encodeRowHead(command: ServerRequest['command'], ballot: EncodedBallot): readonly string[] {
  if (typeof command === 'string') {
    const at = command.indexOf(' ');
    return at === -1 ? [command, '0', ''] : [command.slice(0, at), '0', command.slice(at + 1)];
  }
  return [
    'acquire',
    '0',
    `${command.memoryMs}`,
    `${command.retryWithinMs}`,
    ...encodeLockParts(command, ballot),
  ];
}

/** In a lock that nobody waits for, before the holder. */
const HELD_WITHOUT_WAITERS = `0 ${NEVER}`;

/** Of a lock: what stands before the time of the grant, between that and the holder, and behind him. */
function encodeLockParts({ leaseMs, tokenCount, instance }: AcquireCommand, ballot: EncodedBallot) {
  return [
    `${ballot.lastToken(tokenCount)} ${NO_TICK} ${NEVER} ${ballot.token} `,
    ` ${fixedWidth(leaseMs * 1_000)} ${HELD_WITHOUT_WAITERS} `,
    ` ${ballot.firstToken} - - ${instance}`,
  ] as const;
}

/** To hold a lock that other servers have granted. */
export function encodeReplication(holder: string, command: AcquireCommand, ballot: Ballot): string {
  const [before, between, behind] = encodeLockParts(command, new EncodedBallot(ballot));
  return `rejoin ${command.leaseMs} ${command.memoryMs} ${before}${NEVER}${between}${holder}${behind}`;
}

/** For so many whole ms a lock is still held: it is to end everywhere at the same time, more or less. */
export const remainingLeaseMs = (leaseMs: number, passedMs: number) =>
  Math.max(Math.ceil(leaseMs - passedMs), 1);

const VOTE_SUFFIX = '}:vote';

/** Not that of a lock in one Redis, which is another text: a server may have served for that before. */
const voteKeyOf = (key: string) => `{${key}${VOTE_SUFFIX}`;

/** The key of a lock, from what its vote is called in the server. */
export const keyOfVoteKey = (voteKey: string, keyPrefix: string) =>
  voteKey.slice(keyPrefix.length + 1, -VOTE_SUFFIX.length);

/** Numbers that are compared as text are of one width. */
export const fixedWidth = (number: number) => String(Math.floor(number)).padStart(16, '0');
