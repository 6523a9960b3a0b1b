import { MOST_NOTES } from '../../core/backend.js';
import { TICK_MEMORY_MS } from './lua.js';
import type { ScriptRunner } from './script.js';

/*
 * In: KEYS the list; ARGV the note, how many are kept, for how many ms.
 * Out: nothing.
 * One step, so that no list stays without its limits.
 */
const ADD = `
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])`;

/** In: KEYS the list. Out: its notes. As a script, because that is all we ask of a client. */
const READ = `return redis.call('LRANGE', KEYS[1], 0, -1)`;

export async function addNote(runner: ScriptRunner, key: string, text: string): Promise<void> {
  await runner.eval(ADD, 1, listOf(key), text, MOST_NOTES, TICK_MEMORY_MS);
}

export const readNotes = (runner: ScriptRunner, key: string) =>
  runner.eval(READ, 1, listOf(key)) as Promise<readonly string[]>;

const listOf = (key: string) => `{${key}}:notes`;
