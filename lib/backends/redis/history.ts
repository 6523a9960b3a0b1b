import { MAX_HISTORY_ENTRIES } from '../../core/backend.js';
import { TICK_MEMORY_MS } from './single/lock-script.js';
import type { ScriptRunner } from './single/commands.js';

/*
 * In: KEYS the list; ARGV the note, how many are kept, for how many ms.
 * Out: nothing.
 * One step, so that no list stays without its limits.
 */
const APPEND_SCRIPT = `
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])`;

/** In: KEYS the list. Out: its notes. As a script, because that is all we ask of a client. */
const READ_SCRIPT = `return redis.call('LRANGE', KEYS[1], 0, -1)`;

export async function appendHistory(runner: ScriptRunner, key: string, text: string): Promise<void> {
  await runner.eval(APPEND_SCRIPT, 1, historyKeyOf(key), text, MAX_HISTORY_ENTRIES, TICK_MEMORY_MS);
}

export const readHistory = (runner: ScriptRunner, key: string) =>
  runner.eval(READ_SCRIPT, 1, historyKeyOf(key)) as Promise<readonly string[]>;

const historyKeyOf = (key: string) => `{${key}}:notes`;
