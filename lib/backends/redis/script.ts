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
}

interface Reply {
  readonly serverTimeUs: number;
  readonly answers: string[];
}

/**
 * Runs the requests as one. The server may have forgotten the script (restart, failover, SCRIPT FLUSH): then the text
 * itself is sent, which is safe even if the first attempt did run, as holders are unique.
 */
export async function runScript(
  runner: ScriptRunner,
  requests: readonly ScriptRequest[],
  { notAfterUs, channel }: Circumstances,
): Promise<Reply> {
  const words: string[] = [];
  const areRenewals = requests.every(isRenewal);
  for (const { key } of requests) {
    words.push(lockKeyOf(key));
    if (!areRenewals) words.push(`{${key}}:line`, `{${key}}:waiting`);
  }
  const keyCount = words.length;
  words.push(notAfterUs.toFixed(0), channel, areRenewals ? '1' : '3');
  for (const { terms, holder } of requests) words.push(terms, holder);
  const [serverTimeUs, ...answers] = (await runner
    .evalsha(SHA1, keyCount, ...words)
    .catch((error: unknown) => {
      if (!isScriptUnknown(error)) throw error;
      return runner.eval(LUA, keyCount, ...words);
    })) as [string, ...string[]];
  return { serverTimeUs: Number(serverTimeUs), answers };
}

/** How the terms of a renewal begin. Most of what a process with many locks sends are renewals. */
export const RENEW = 'renew ';

export const isRenewal = ({ terms }: ScriptRequest) => terms.startsWith(RENEW);

const LOCK_SUFFIX = '}:lock';

const lockKeyOf = (key: string) => `{${key}${LOCK_SUFFIX}`;

/** The key and how soon it may be free, from what the script publishes. */
export function callFrom(message: string, keyPrefix: string): { key: string; inMs: number } {
  const at = message.indexOf(' ');
  const lockKey = message.slice(at + 1 + keyPrefix.length);
  return { inMs: Number(message.slice(0, at)), key: lockKey.slice(1, -LOCK_SUFFIX.length) };
}

const isScriptUnknown = (error: unknown) => (error as Error).message.startsWith('NOSCRIPT');
