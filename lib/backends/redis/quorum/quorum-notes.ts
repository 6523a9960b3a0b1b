import { randomBytes } from 'node:crypto';
import { atMost } from '../../../core/at-most.js';
import { MOST_NOTES } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { addNote, readNotes } from '../notes.js';
import { wide } from './node-call.js';
import type { Voters } from './voters.js';

/** Notes of the same µs, and the same words noted twice, stay apart. */
export class QuorumNotes {
  readonly #voters: Voters;
  readonly #session = randomBytes(6).toString('base64url');
  #count = 0;

  constructor(voters: Voters) {
    this.#voters = voters;
  }

  /** Writes it down on all servers; it stands when a majority has it. */
  async add(key: string, text: string, limitMs: number): Promise<void> {
    this.#count += 1;
    const when = wide(this.#voters.ballotUs(0));
    const stored = `${when} ${this.#session}:${this.#count} ${text}`;
    await this.#askAll((voter) => voter.withClient((client) => addNote(client, key, stored)), limitMs);
  }

  /** What a majority, or more of them, have written down. */
  async read(key: string, limitMs: number): Promise<readonly string[]> {
    const lists = await this.#askAll(
      (voter) => voter.withClient((client) => readNotes(client, key)),
      limitMs,
    );
    const stored = [...new Set(lists.flat())].sort().reverse().slice(0, MOST_NOTES);
    return stored.map((line) => line.split(' ').slice(2).join(' '));
  }

  /** The answers of all that answer in time, at least of a majority. */
  async #askAll<T>(
    ask: (voter: Voters['all'][number]) => Promise<T>,
    limitMs: number,
  ): Promise<readonly T[]> {
    const answers: T[] = [];
    const all = this.#voters.all.map((voter) =>
      ask(voter).then(
        (answer) => answers.push(answer),
        () => undefined,
      ),
    );
    const enough = new Promise<void>((resolve) => {
      const look = () => answers.length >= this.#voters.needed && resolve();
      for (const one of all) void one.then(look);
      void Promise.all(all).then(() => resolve());
    });
    await atMost(systemClock, limitMs, enough, { awaited: true });
    if (answers.length < this.#voters.needed) throw this.#voters.doubt(limitMs).cause;
    return [...answers];
  }
}
