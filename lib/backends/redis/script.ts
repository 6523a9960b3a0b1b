import { LUA } from './lua.js';
import { addRows } from './rows.js';
import { type ScriptRunner, evaluate, scriptOf } from './script-runner.js';

export type { ScriptRunner } from './script-runner.js';

const SCRIPT = scriptOf(LUA);

/** One request to the script. */
export interface ScriptRequest {
  readonly key: string;
  /** A verb of the script and what it needs to know. */
  readonly terms: string;
  /** Or the fencing token, for a release by force. */
  readonly holder: string;
}

/** What goes for all requests of a run. */
interface Circumstances {
  /** The latest server time in µs at which an acquisition is still wanted; 0: any. */
  readonly notAfterUs: number;
  /** On which the asker hears calls. */
  readonly channel: string;
  /** With one, the lock, the server has less to read, and answers `crowded` where it takes all three. */
  readonly keysEach: 1 | 3;
}

/**
 * Runs the requests as one.
 *
 * @returns the server's time in µs, and the answer to each request
 */
export function runScript(
  runner: ScriptRunner,
  requests: readonly ScriptRequest[],
  { notAfterUs, channel, keysEach }: Circumstances,
): Promise<readonly string[]> {
  const words: string[] = [];
  for (const { key } of requests) {
    words.push(lockKeyOf(key));
    if (keysEach === 3) words.push(`{${key}}:line`, `{${key}}:waiting`);
  }
  const keyCount = words.length;
  words.push(notAfterUs.toFixed(0), channel, String(keysEach));
  addRows(words, requests, (terms) => [terms, '0']);
  return evaluate(runner, SCRIPT, keyCount, words) as Promise<readonly string[]>;
}

const LOCK_SUFFIX = '}:lock';

/** Its other keys differ in the suffix alone, and lie on the same slot. */
export const lockKeyOf = (key: string) => `{${key}${LOCK_SUFFIX}`;

/** The key and how soon it may be free, from what the script publishes. */
export function callFrom(message: string, keyPrefix: string): { key: string; inMs: number } {
  const at = message.indexOf(' ');
  const lockKey = message.slice(at + 1 + keyPrefix.length);
  return { inMs: Number(message.slice(0, at)), key: lockKey.slice(1, -LOCK_SUFFIX.length) };
}
