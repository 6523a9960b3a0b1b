import { type Script, type ScriptRunner, appendRequestRows, evaluate } from '../script-runner.js';
import { allKeysOf, lockKeyOf } from './lock-keys.js';
import { LONE_RELEASE, type ScriptRequest } from './script-requests.js';

/** What a call needs besides its requests. */
interface CallOptions {
  /** The lock script. */
  readonly script: Script;
  /** The latest server time in µs at which an acquisition may take effect; `undefined`: any. */
  readonly notAfterUs: number | undefined;
  /** The channel on which this process receives notifications. */
  readonly channel: string;
}

interface RunOptions extends CallOptions {
  /** With one key, the lock, the server reads less, and replies `needsQueue` if the request needs all three. */
  readonly keysPerRequest: 1 | 3;
}

/** A time in µs that never comes, in 16 digits. */
const FOREVER = '9'.repeat(16);

/** Runs a single request. Rejects if the server does not know the script. */
export const runLoneRequest = (
  runner: ScriptRunner,
  request: ScriptRequest,
  options: CallOptions,
): Promise<unknown> =>
  runner.evalsha(options.script.sha1, 3, ...encodeLone(request, { ...options, keysPerRequest: 3 }));

/** Runs all requests in one script call. */
export function runScript(
  runner: ScriptRunner,
  requests: readonly ScriptRequest[],
  options: RunOptions,
): Promise<unknown> {
  const [first] = requests;
  const values = first && requests.length === 1 ? encodeLone(first, options) : encodeRows(requests, options);
  return evaluate(runner, options.script, requests.length * options.keysPerRequest, values);
}

/** KEYS and ARGV of a single request. */
function encodeLone(request: ScriptRequest, options: RunOptions): readonly string[] {
  const { command, holder } = request;
  const keys = keysOf(request, options);
  return command === LONE_RELEASE ? [...keys, holder] : [...keys, encodeHeader(options), command, holder];
}

/** KEYS and ARGV of several requests. */
function encodeRows(requests: readonly ScriptRequest[], options: RunOptions): readonly string[] {
  const values: string[] = [];
  for (const request of requests) values.push(...keysOf(request, options));
  values.push(encodeHeader(options));
  appendRequestRows(values, requests, (command) => [command, '0']);
  return values;
}

const keysOf = ({ key }: ScriptRequest, { keysPerRequest }: RunOptions) =>
  keysPerRequest === 3 ? allKeysOf(key) : [lockKeyOf(key)];

const encodeHeader = ({ notAfterUs, channel, keysPerRequest }: RunOptions) =>
  `${notAfterUs?.toFixed(0).padStart(16, '0') ?? FOREVER} ${keysPerRequest} ${channel}`;
