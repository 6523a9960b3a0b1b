import { createHash } from 'node:crypto';
import { LUA } from './lua.js';

const SHA1 = createHash('sha1').update(LUA).digest('hex');

/** What it takes to run a script: part of every Redis and Cluster client of ioredis. */
export interface ScriptRunner {
  eval(script: string, keyCount: number, ...values: (string | number)[]): Promise<unknown>;
  evalsha(sha1: string, keyCount: number, ...values: (string | number)[]): Promise<unknown>;
}

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
 * Runs the requests as one. The server may have forgotten the script (restart, failover, SCRIPT FLUSH): then the text
 * itself is sent, which is safe even if the first attempt did run, as holders are unique.
 *
 * @returns the server's time in µs, and the answer to each request
 */
export async function runScript(
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
  addRows(words, requests);
  try {
    return (await runner.evalsha(SHA1, keyCount, ...words)) as string[];
  } catch (error) {
    if (!isScriptUnknown(error)) throw error;
    return (await runner.eval(LUA, keyCount, ...words)) as string[];
  }
}

/** Neighbours with the same terms share them. */
function addRows(words: string[], requests: readonly ScriptRequest[]): void {
  let shared: string | undefined;
  let countAt = 0;
  let count = 0;
  for (const { terms, holder } of requests) {
    if (terms !== shared) {
      shared = terms;
      count = 0;
      countAt = words.push(terms, '0') - 1;
    }
    count += 1;
    words[countAt] = String(count);
    words.push(holder);
  }
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

const isScriptUnknown = (error: unknown) => (error as Error).message.startsWith('NOSCRIPT');
