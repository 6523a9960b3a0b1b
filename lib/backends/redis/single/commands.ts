import { LOCK_SCRIPT } from './lock-script.js';
import { appendRequestRows } from '../request-rows.js';
import { type ScriptRunner, evaluate, scriptOf } from '../script-runner.js';

export type { ScriptRunner } from '../script-runner.js';

const SCRIPT = scriptOf(LOCK_SCRIPT);

/** One request to the script. */
export interface ScriptRequest {
  readonly key: string;
  /** A verb of the script and what it needs to know. */
  readonly command: string;
  /** Or the fencing token, for a release by force. */
  readonly holder: string;
}

/** What goes for all requests of a run. */
interface RunOptions {
  /** The latest server time in µs at which an acquisition is still wanted; 0: any. */
  readonly notAfterUs: number;
  /** On which the asker hears calls. */
  readonly channel: string;
  /** With one, the lock, the server has less to read, and answers `crowded` where it takes all three. */
  readonly keysPerRequest: 1 | 3;
}

/**
 * Runs the requests as one.
 *
 * @returns the server's time in µs, and the answer to each request
 */
export function runScript(
  runner: ScriptRunner,
  requests: readonly ScriptRequest[],
  { notAfterUs, channel, keysPerRequest }: RunOptions,
): Promise<readonly string[]> {
  const values: string[] = [];
  for (const { key } of requests) {
    values.push(lockKeyOf(key));
    if (keysPerRequest === 3) values.push(`{${key}}:line`, `{${key}}:waiting`);
  }
  const keyCount = values.length;
  values.push(notAfterUs.toFixed(0), channel, String(keysPerRequest));
  appendRequestRows(values, requests, (command) => [command, '0']);
  return evaluate(runner, SCRIPT, keyCount, values) as Promise<readonly string[]>;
}

const LOCK_SUFFIX = '}:lock';

/** Its other keys differ in the suffix alone, and lie on the same slot. */
export const lockKeyOf = (key: string) => `{${key}${LOCK_SUFFIX}`;

/** The key and how soon it may be free, from what the script publishes. */
export function parseNotification(message: string, keyPrefix: string): { key: string; inMs: number } {
  const at = message.indexOf(' ');
  const lockKey = message.slice(at + 1 + keyPrefix.length);
  return { inMs: Number(message.slice(0, at)), key: lockKey.slice(1, -LOCK_SUFFIX.length) };
}
