import { atMost } from '../../../core/at-most.js';
import { type Moment, type Timer, doAgree, momentOf, systemClock } from '../../../core/clock.js';
import { nextTurn } from '../../../core/real-time.js';
import { reasonOf } from '../../../core/shown.js';
import { CHANNEL_PREFIX } from '../calls.js';
import { evaluate, scriptOf } from '../script-runner.js';
import { LONGEST_CALL_MS } from './node-call.js';
import type { Voter } from './voter.js';

/**
 * The servers that one server counts as those of its quorum, itself among them: no more than the list is long. A process
 * with another list is refused the servers for which there is no room.
 *
 * - In: KEYS[1], a sorted set of servers by the time in ms until which they count; with `#5`, the length of the list.
 *   ARGV: for how many ms the servers count, the length of the list, and for each server the id of its present run,
 *   followed by those of the runs that it goes on.
 * - Out: the length of another list whose servers still count (or 0), and the servers refused.
 * - In one step, so that of two lists that arrive at once only one is taken.
 */
const SCRIPT = scriptOf(`
local call, key = redis.call, KEYS[1]
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local latest, length = now + ARGV[1], '#' .. ARGV[2]
local other, counted, count = '0', {}, 0
local rows = call('ZRANGE', key, 0, -1, 'WITHSCORES')
for i = 1, #rows, 2 do
  local member, untilMs = rows[i], tonumber(rows[i + 1])
  if untilMs <= now then
    call('ZREM', key, member)
  else
    -- The clock was set back.
    if untilMs > latest then call('ZADD', key, latest, member) end
    if string.sub(member, 1, 1) ~= '#' then
      counted[member], count = true, count + 1
    elseif member ~= length then
      other = string.sub(member, 2)
    end
  end
end
local reply = {other}
for i = 3, #ARGV do
  local server
  for run in string.gmatch(ARGV[i], '%x+') do
    if not server then
      server = run
    elseif other == '0' and counted[run] then
      call('ZREM', key, run)
      counted[run], count = nil, count - 1
    end
  end
  if other == '0' and (counted[server] or count < tonumber(ARGV[2])) then
    if not counted[server] then counted[server], count = true, count + 1 end
    call('ZADD', key, latest, server, latest, length)
    call('PEXPIRE', key, ARGV[1])
  else
    reply[#reply + 1] = server
  end
end
return reply
`);

const KEY = `${CHANNEL_PREFIX}quorum:servers`;
/** The votes of a server count for so long without another confirmation: a part of the quarantine, but at least that. */
const PART_OF_QUARANTINE = 1 / 4;
const SHORTEST_VALIDITY_MS = 2_000;
const CONFIRMATIONS_PER_VALIDITY = 3;
const NEVER: Moment = { monotonicMs: 0, wallMs: 0 };

/** The last word of a server, and until when it counts. */
interface Word {
  /** Its own run, and before it those which that one goes on. */
  readonly runs: readonly string[];
  /** The runs of the servers for which it has no room. */
  readonly refused: readonly string[];
  readonly untilMs: number;
}

/**
 * Sees to it that no two processes count majorities of different lists. A server has a vote only if no server that answers
 * counts others in its place; that is confirmed again and again. Each server remembers whom it counts until all leases are
 * over that rest on the last confirmation. A server is known by its run id: one may be reached by several addresses, and a
 * copy of its data makes another server. After a restart a process that saw it says which runs it goes on.
 */
export class ServerList {
  readonly #voters: readonly Voter[];
  readonly #validForMs: number;
  readonly #rememberedForMs: number;
  readonly #words = new Map<Voter, Word>();
  /** Those that servers forgot when they restarted. */
  #forgotten: readonly Word[] = [];
  /** All servers have been tried, so that none which could refuse is passed over. */
  #wereTried = false;
  #confirmedUntilMs = -Infinity;
  #confirmedAt: Moment = NEVER;
  #confirming: Promise<void> | undefined;
  #isOutdated = false;
  #next: Timer | undefined;

  constructor(voters: readonly Voter[], quarantineMs: number) {
    this.#voters = voters;
    this.#validForMs = Math.max(quarantineMs * PART_OF_QUARANTINE, SHORTEST_VALIDITY_MS);
    this.#rememberedForMs = Math.ceil(this.#validForMs + quarantineMs);
  }

  get isConfirming(): boolean {
    return this.#confirming !== undefined;
  }

  /** A process that stood still for long must ask the servers again before their votes count. */
  get isConfirmed(): boolean {
    const now = momentOf(systemClock);
    // Of a machine that slept only the wall clock went on, as those of the servers did.
    return now.monotonicMs < this.#confirmedUntilMs && doAgree(this.#confirmedAt, now);
  }

  /** All servers have been tried: asks those that are there. */
  confirm(): Promise<void> {
    this.#wereTried = true;
    this.#confirming ??= this.#confirmAll();
    return this.#confirming;
  }

  /** A server has come or gone. */
  changed(): void {
    this.#isOutdated = true;
    if (this.#wereTried) void this.confirm();
  }

  close(): void {
    this.#next?.cancel();
    this.#next = undefined;
    this.#wereTried = false;
    this.#confirmedUntilMs = -Infinity;
    for (const voter of this.#voters) voter.unlist('not confirmed yet');
  }

  async #confirmAll(): Promise<void> {
    do await this.#confirmOnce();
    while (this.#isOutdated && this.#wereTried);
    this.#confirming = undefined;
    this.#next?.cancel();
    if (!this.#wereTried) return;
    this.#next = systemClock.after(this.#validForMs / CONFIRMATIONS_PER_VALIDITY, () => void this.confirm());
  }

  async #confirmOnce(): Promise<void> {
    this.#isOutdated = false;
    const present = this.#voters.filter(({ canBeAsked }) => canBeAsked);
    const runs = present.map(({ runId }) => runId);
    for (const voter of present) this.#keepForgotten(voter);
    // A server that forgot whom it counted has room for those until they name themselves.
    const named = present.filter((voter) => !isRefused(voter, this.#forgotten));
    const names = [...new Set(named.map(({ runs: all }) => all.join(' ')))];
    const sentAt = momentOf(systemClock);
    for (const voter of present) void voter.lookAgain();
    const answered = await Promise.all(present.map((voter) => this.#ask(voter, names)));
    if (!this.#wereTried) return;
    this.#confirmedUntilMs = sentAt.monotonicMs + this.#validForMs;
    this.#confirmedAt = sentAt;
    if (!this.isConfirmed) this.#isOutdated = true;
    for (const [index, voter] of present.entries()) {
      const { runId } = voter;
      if (!answered[index] || runId === undefined || runId !== runs[index]) continue;
      if (!named.includes(voter) || isRefused(voter, [...this.#words.values(), ...this.#forgotten])) continue;
      voter.list(this.#confirmedUntilMs, sentAt);
    }
  }

  /** Whether it answers in time. A refusal counts also if it comes later. */
  async #ask(voter: Voter, names: readonly string[]): Promise<boolean> {
    const words = [KEY, this.#rememberedForMs, this.#voters.length, ...names];
    const { runs } = voter;
    let hasAnswered = false;
    const asked = voter
      .withClient((client) => evaluate(client, SCRIPT, 1, words))
      .then((reply) => {
        const [length, ...refused] = reply as [string, ...string[]];
        this.#words.set(voter, { runs, refused, untilMs: this.#rememberedUntilMs() });
        this.#unlist(refused, this.#reason(voter, length));
        hasAnswered = true;
      })
      .catch((cause: unknown) => voter.isUnconfirmed(unwritable(cause)));
    // Where we were kept from everything meanwhile, the answer may lie there.
    if (!(await atMost(systemClock, LONGEST_CALL_MS, asked, { awaited: true }))) await nextTurn();
    return hasAnswered;
  }

  /** Of a server that restarted without its data, what it said before counts for as long as if it had said so now. */
  #keepForgotten(voter: Voter): void {
    const nowMs = systemClock.monotonicMs();
    const word = this.#words.get(voter);
    if (!word || word.runs.some((run) => voter.runs.includes(run))) return;
    this.#words.delete(voter);
    this.#forgotten = this.#forgotten.filter(({ untilMs }) => nowMs < untilMs);
    if (nowMs < word.untilMs)
      this.#forgotten = [...this.#forgotten, { ...word, untilMs: this.#rememberedUntilMs() }];
  }

  #rememberedUntilMs(): number {
    return systemClock.monotonicMs() + this.#rememberedForMs;
  }

  #unlist(refused: readonly string[], why: string): void {
    for (const one of this.#voters) {
      if (one.runId !== undefined && refused.includes(one.runId)) one.unlist(why);
    }
  }

  #reason({ name }: Voter, length: string): string {
    const other =
      length === '0' ? 'other servers' : `${length} servers, this list has ${this.#voters.length}`;
    const seconds = Math.ceil(this.#rememberedForMs / 1_000);
    return (
      `as ${name} counts ${other} (give all processes the same list; a changed list or a new server counts when no process ` +
      `has named the old one for ${seconds} s)`
    );
  }
}

/** Also by a server that is slow or away now. */
function isRefused({ runs }: Voter, words: readonly Word[]): boolean {
  const nowMs = systemClock.monotonicMs();
  return words.some(({ refused, untilMs }) => nowMs < untilMs && runs.some((run) => refused.includes(run)));
}

const unwritable = (cause: unknown) =>
  `as it does not note the servers of this list (${reasonOf(cause)}). With an ACL, allow ~${CHANNEL_PREFIX}*`;
