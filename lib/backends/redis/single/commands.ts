import { appendRequestRows } from '../script-runner.js';
import { type ScriptRunner, evaluate, scriptOf } from '../script-runner.js';
import { LOCK_SCRIPT } from './lock-script.js';

export type { ScriptRunner } from '../script-runner.js';

const SCRIPT = scriptOf(LOCK_SCRIPT);

/** One request to the lock script. */
export interface ScriptRequest {
  readonly key: string;
  /** A verb of the script with its parameters. */
  readonly command: string;
  /** For `forceRelease`, the fencing token instead. */
  readonly holder: string;
}

/** What all requests of one call share. */
interface RunOptions {
  /** The latest server time in µs at which an acquisition may take effect; 0: any. */
  readonly notAfterUs: number;
  /** The channel on which this process receives notifications. */
  readonly channel: string;
  /** With one key, the lock, the server reads less, and replies `needsQueue` if the request needs all three. */
  readonly keysPerRequest: 1 | 3;
}

/**
 * Runs all requests in one script call.
 *
 * @returns the server's time in µs, then the reply to each request
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

/** The Redis key of a lock. Its other keys differ only in the suffix, and are on the same slot of a Cluster. */
export const lockKeyOf = (key: string) => `{${key}${LOCK_SUFFIX}`;

/** Parses a message of the script: how soon the key may be free, then its Redis key. */
export function parseNotification(message: string, keyPrefix: string): { key: string; inMs: number } {
  const at = message.indexOf(' ');
  const lockKey = message.slice(at + 1 + keyPrefix.length);
  return { inMs: Number(message.slice(0, at)), key: lockKey.slice(1, -LOCK_SUFFIX.length) };
}
