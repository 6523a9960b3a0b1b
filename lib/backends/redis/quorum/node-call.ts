import { Script, type ScriptRequest, type ScriptRunner, addRows, lockKeyOf } from '../script.js';
import { NODE_LUA } from './node-lua.js';

const script = new Script(NODE_LUA);

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

  constructor(requests: readonly ScriptRequest[], ballot = NO_BALLOT) {
    this.#keys = requests.map(({ key }) => lockKeyOf(key));
    this.#ballot = ballot;
    addRows(this.#rows, requests);
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
    return script.run(runner, this.#keys.length, [...this.#keys, ...about, ...this.#rows]);
  }
}

/** Numbers that are compared as text are of one width. */
export const wide = (number: number) => number.toFixed(0).padStart(16, '0');
