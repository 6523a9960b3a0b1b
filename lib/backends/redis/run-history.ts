import { MAX_HISTORY_ENTRIES } from '../../core/backend.js';
import type { ScriptRunner } from './script-runner.js';
import { TICK_MEMORY_MS } from './single/stored-lock.js';

/**
 * In: KEYS the list; ARGV the entry, how many entries to keep, and for how many ms.
 * Out: nothing.
 * One step, so that no list is left without its limits.
 */
const APPEND_SCRIPT = `
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])`;

/** In: KEYS the list. Out: its entries, the newest first. A script, because `ScriptRunner` runs nothing else. */
const READ_SCRIPT = `return redis.call('LRANGE', KEYS[1], 0, -1)`;

/** Adds an entry to the history of a key, and drops the oldest beyond `MAX_HISTORY_ENTRIES`. */
export async function appendHistory(runner: ScriptRunner, key: string, text: string): Promise<void> {
  await runner.eval(APPEND_SCRIPT, 1, historyKeyOf(key), text, MAX_HISTORY_ENTRIES, TICK_MEMORY_MS);
}

/** The history of a key, the newest entry first. */
export const readHistory = (runner: ScriptRunner, key: string) =>
  runner.eval(READ_SCRIPT, 1, historyKeyOf(key)) as Promise<readonly string[]>;

const historyKeyOf = (key: string) => `{${key}}:notes`;
