import { appendRequestRows } from '../script-runner.js';
import { type ScriptRunner, evaluate, scriptOf } from '../script-runner.js';
import { FOREVER, NEVER, VOTE_SCRIPT, NO_TICK } from './vote-script.js';

const SCRIPT = scriptOf(VOTE_SCRIPT);
const FOREVER_US = Number(FOREVER);

/** One request to one server. */
export interface ServerRequest {
  readonly key: string;
  readonly holder: string;
  /** A verb of the vote script with its parameters, or an acquisition, which `ServerCall` encodes. */
  readonly command: string | AcquireCommand;
}

/**
 * The parameters of an acquisition. It is by far the most frequent request, so `ServerCall` encodes it in a form that the
 * server need not parse.
 */
export interface AcquireCommand {
  readonly leaseMs: number;
  /** How long a server remembers the fencing tokens of the key, in ms. */
  readonly memoryMs: number;
  readonly retryWithinMs: number;
  readonly tokenCount: number;
  readonly instance: string;
}

/** What a call asks the servers to vote for. */
export interface Ballot {
  /** The fencing token that the acquisition asks for: the servers' time in µs, or a little more. */
  readonly us: number;
  /** The ballot of the first round of the same acquisition. When acquisitions split the votes, the smallest one has priority. */
  readonly firstUs: number;
  /** Whether votes that the acquisition already has are raised to this ballot. */
  readonly isRaised: boolean;
}

/** For calls that do not acquire. */
export const NO_BALLOT: Ballot = { us: 0, firstUs: 0, isRaised: false };

/** No caller waits longer for a reply. Servers refuse a call that arrives later, so a lost call takes no effect after that. */
export const MAX_CALL_MS = 500;

/** The command of a release that is certain to arrive within the lease. */
export const RELEASE_WITHIN_LEASE = 'release sure';

/** What differs from server to server. */
interface CallContext {
  /** The latest server time in µs at which the call may take effect. */
  readonly notAfterUs: number;
  /** How far a ballot may differ from the server's clock. */
  readonly ballotToleranceUs: number;
  readonly channel: string;
}

/** What one server returns for one call. */
export interface CallReply {
  /** The server's time in µs; 0 if it did not read its clock. */
  readonly timeUs: number;
  /** In the order of the requests. */
  readonly replies: readonly string[];
}

/** Requests that are encoded once and sent to several servers. */
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

  /** Also rejects if the reply is not one of the vote script: a proxy before the server may have sent it. */
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
    throw new Error('its reply is not that of the vote script');
  };
}

/** A ballot in the form that the vote script reads. */
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

  /** The last of `count` tokens that start with the ballot. */
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

/** The two most frequent calls, a single acquisition and a single release, have a shorter form. */
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

/** The columns before the holder in a lock that is held and has no waiters. */
const HELD_WITHOUT_WAITERS = `0 ${NEVER}`;

/** The columns of a lock before the time of the grant, between that time and the holder, and after the holder. */
function encodeLockParts({ leaseMs, tokenCount, instance }: AcquireCommand, ballot: EncodedBallot) {
  return [
    `${ballot.lastToken(tokenCount)} ${NO_TICK} ${NEVER} ${ballot.token} `,
    ` ${fixedWidth(leaseMs * 1_000)} ${HELD_WITHOUT_WAITERS} `,
    ` ${ballot.firstToken} - - ${instance}`,
  ] as const;
}

/** The command that copies a lock which other servers have granted. */
export function encodeReplication(holder: string, command: AcquireCommand, ballot: Ballot): string {
  const [before, between, behind] = encodeLockParts(command, new EncodedBallot(ballot));
  return `rejoin ${command.leaseMs} ${command.memoryMs} ${before}${NEVER}${between}${holder}${behind}`;
}

/** The rest of a lease in whole ms, so that a copy ends at about the same time as the other copies. */
export const remainingLeaseMs = (leaseMs: number, passedMs: number) =>
  Math.max(Math.ceil(leaseMs - passedMs), 1);

const VOTE_SUFFIX = '}:vote';

/** Differs from the key of a lock on one Redis, which has another format: the server may have been used for that before. */
const voteKeyOf = (key: string) => `{${key}${VOTE_SUFFIX}`;

/** The key of a lock, from the Redis key of its vote. */
export const keyOfVoteKey = (voteKey: string, keyPrefix: string) =>
  voteKey.slice(keyPrefix.length + 1, -VOTE_SUFFIX.length);

/** Numbers that the script compares as text have a fixed width. */
export const fixedWidth = (number: number) => String(Math.floor(number)).padStart(16, '0');
