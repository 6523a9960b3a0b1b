import { escapePattern } from '../key-scan.js';
import { type ScriptRunner, appendRequestRows, evaluate, scriptOf } from '../script-runner.js';
import { FOREVER, NEVER, NO_TICK } from './stored-lock.js';
import { VOTE_SCRIPT } from './vote-script.js';

const SCRIPT = scriptOf(VOTE_SCRIPT);

/** One request to one server. */
export interface ServerRequest {
  readonly key: string;
  readonly holder: string;
  /** A verb of the vote script with its parameters, or an acquisition. */
  readonly command: string | AcquireCommand;
}

/** The parameters of an acquisition. The fast path of the script copies them without parsing. */
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
/** Before a call is repeated to servers that were too slow. */
export const SLOW_PAUSE_MS = 20;

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
  /** The server's time in µs. */
  readonly timeUs: number;
  /** In the order of the requests. */
  readonly replies: readonly string[];
}

/** Requests that are encoded once and sent to several servers. */
export class ServerCall {
  readonly #keys: readonly string[];
  readonly #ballot: Ballot;
  readonly #ballotText: string;
  readonly #rows: readonly string[];

  constructor(requests: readonly ServerRequest[], ballot = NO_BALLOT) {
    this.#keys = requests.map(({ key }) => voteKeyOf(key));
    this.#ballot = ballot;
    this.#ballotText = `${fixedWidth(ballot.us)} ${fixedWidth(ballot.firstUs)} ${ballot.isRaised ? 1 : 0}`;
    const rows: string[] = [];
    appendRequestRows(rows, requests, (command) => encodeRowHead(command, ballot));
    this.#rows = rows;
  }

  /** Also rejects if the reply is not one of the vote script: a proxy before the server may have sent it. */
  run(runner: ScriptRunner, context: CallContext): Promise<CallReply> {
    const values = [...this.#keys, this.#encodeHeader(context), ...this.#rows];
    return evaluate(runner, SCRIPT, this.#keys.length, values).then((reply) => {
      const replies = typeof reply === 'string' ? reply.split('\0') : [];
      const timeUs = Number(replies.shift());
      if (timeUs > 0 && replies.length === this.#keys.length) return { timeUs, replies };
      throw new Error('its reply is not that of the vote script');
    });
  }

  #encodeHeader({ notAfterUs, ballotToleranceUs, channel }: CallContext): string {
    const { us } = this.#ballot;
    const earliest = us > ballotToleranceUs ? fixedWidth(us - ballotToleranceUs) : NEVER;
    const latestUs = us === 0 ? notAfterUs : Math.min(notAfterUs, us + ballotToleranceUs);
    const latest = latestUs < Number(FOREVER) ? fixedWidth(latestUs) : FOREVER;
    return `${earliest} ${latest} ${this.#ballotText} ${channel}`;
  }
}

function encodeRowHead(command: ServerRequest['command'], ballot: Ballot): readonly string[] {
  if (typeof command === 'string') return [command, '0'];
  const { memoryMs, retryWithinMs } = command;
  return [`acquire ${memoryMs} ${retryWithinMs}`, '0', ...encodeLockParts(command, ballot)];
}

/** The columns of a lock before the time of the grant, between that time and the holder, and after the holder. */
function encodeLockParts({ leaseMs, tokenCount, instance }: AcquireCommand, { us, firstUs }: Ballot) {
  return [
    `${fixedWidth(us + tokenCount - 1)} ${NO_TICK} ${NEVER} ${fixedWidth(us)} `,
    ` ${fixedWidth(leaseMs * 1_000)} 0 ${NEVER} `,
    ` ${fixedWidth(firstUs)} - - ${instance}`,
  ] as const;
}

/** The command that copies a lock which other servers have granted. */
export function encodeReplication(holder: string, command: AcquireCommand, ballot: Ballot): string {
  const [before, between, behind] = encodeLockParts(command, ballot);
  return `rejoin ${command.leaseMs} ${command.memoryMs} ${before}${NEVER}${between}${holder}${behind}`;
}

/** The rest of a lease in whole ms, so that a copy ends at about the same time as the other copies. */
export const remainingLeaseMs = (leaseMs: number, passedMs: number) =>
  Math.max(Math.ceil(leaseMs - passedMs), 1);

const VOTE_SUFFIX = '}:vote';

/** Differs from the key of a lock on one Redis, which has another format: the server may have been used for that before. */
export const voteKeyOf = (key: string) => `{${key}${VOTE_SUFFIX}`;

/** The SCAN pattern of the Redis keys of votes for keys that start with the prefix. */
export const votePatternOf = (prefix: string, keyPrefix: string) =>
  `${escapePattern(keyPrefix)}{${escapePattern(prefix)}*${VOTE_SUFFIX}`;

/** The key of a lock, from the Redis key of its vote. */
export const keyOfVoteKey = (voteKey: string, keyPrefix: string) =>
  voteKey.slice(keyPrefix.length + 1, -VOTE_SUFFIX.length);

/** Numbers that the script compares as text have a fixed width. */
export const fixedWidth = (number: number) => String(Math.floor(number)).padStart(16, '0');
