import { randomUUID } from 'node:crypto';
import { atMost } from '../../../core/at-most.js';
import { type Timer, systemClock } from '../../../core/clock.js';
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
 * - In: KEYS[1], a sorted set of servers by the time in ms until which they count; with \`#5\`, the length of the list, and
 *   \`@…\`, the identity of this server. ARGV: an identity in case there is none, for how many ms the servers count, the
 *   length of the list, and the identities of the servers.
 * - Out: the identity of this server, the length of another list whose servers still count (or 0), and the servers refused.
 * - In one step, so that of two lists that arrive at once only one is taken.
 */
const SCRIPT = scriptOf(`
local call, key = redis.call, KEYS[1]
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local latest, length = now + ARGV[2], '#' .. ARGV[3]
local identity, other, counted, count = nil, '0', {}, 0
local rows = call('ZRANGE', key, 0, -1, 'WITHSCORES')
for i = 1, #rows, 2 do
  local member, untilMs = rows[i], tonumber(rows[i + 1])
  local kind, rest = string.sub(member, 1, 1), string.sub(member, 2)
  if kind == '@' then
    identity = rest
  elseif untilMs <= now then
    call('ZREM', key, member)
  else
    -- The clock was set back.
    if untilMs > latest then call('ZADD', key, latest, member) end
    if kind ~= '#' then
      counted[member], count = true, count + 1
    elseif member ~= length then
      other = rest
    end
  end
end
if not identity then
  identity = ARGV[1]
  call('ZADD', key, 0, '@' .. identity)
  call('PEXPIRE', key, ARGV[2])
end
local reply = {identity, other}
for i = 4, #ARGV do
  local server = ARGV[i]
  if other == '0' and (counted[server] or count < tonumber(ARGV[3])) then
    if not counted[server] then count = count + 1 end
    call('ZADD', key, latest, server, latest, length)
    call('PEXPIRE', key, ARGV[2])
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

interface Identity {
  /** Of the run of the server that told it. */
  readonly runId: string;
  readonly id: string;
}

/**
 * Sees to it that no two processes count majorities of different lists. A server has a vote only if no server that answers
 * counts others in its place; that is confirmed again and again. Each server remembers whom it counts until all leases are
 * over that rest on the last confirmation. Servers have identities of their own, as one may be reached by several addresses.
 */
export class ServerList {
  readonly #voters: readonly Voter[];
  readonly #validForMs: number;
  readonly #rememberedForMs: number;
  readonly #identities = new Map<Voter, Identity>();
  readonly #refusals = new Map<Voter, { readonly ids: readonly string[]; readonly untilMs: number }>();
  /** All servers have been tried, so that none which could refuse is passed over. */
  #wereTried = false;
  #confirmedUntilMs = -Infinity;
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
  isConfirmedAt(nowMs: number): boolean {
    return nowMs < this.#confirmedUntilMs;
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
    const unknown = present.filter((voter) => this.#idOf(voter) === undefined);
    await Promise.all(unknown.map((voter) => this.#ask(voter, [])));
    const ids = [...new Set(present.flatMap((voter) => this.#idOf(voter) ?? []))];
    const sentAtMs = systemClock.monotonicMs();
    const answered = await Promise.all(present.map((voter) => this.#ask(voter, ids)));
    if (!this.#wereTried) return;
    this.#confirmedUntilMs = sentAtMs + this.#validForMs;
    if (!this.isConfirmedAt(systemClock.monotonicMs())) this.#isOutdated = true;
    for (const [index, voter] of present.entries()) {
      const id = this.#idOf(voter);
      if (!answered[index] || id === undefined || !ids.includes(id) || this.#isRefused(id)) continue;
      if (this.#isCopy(voter, id)) voter.unlist(COPIED);
      else voter.list(this.#confirmedUntilMs);
    }
  }

  /** Whether it answers in time. A refusal counts also if it comes later. */
  async #ask(voter: Voter, ids: readonly string[]): Promise<boolean> {
    const { runId } = voter;
    if (runId === undefined) return false;
    const newId = this.#idOf(voter) ?? randomUUID();
    const words = [KEY, newId, this.#rememberedForMs, this.#voters.length, ...ids];
    let hasAnswered = false;
    const asked = voter
      .withClient((client) => evaluate(client, SCRIPT, 1, words))
      .then((reply) => {
        const [id, length, ...refused] = reply as [string, string, ...string[]];
        this.#learn(voter, { runId, id });
        if (ids.length > 0) this.#hear(voter, refused, length);
        hasAnswered = true;
      })
      .catch((cause: unknown) => voter.isUnconfirmed(unwritable(cause)));
    // Where we were kept from everything meanwhile, the answer may lie there.
    if (!(await atMost(systemClock, LONGEST_CALL_MS, asked, { awaited: true }))) await nextTurn();
    return hasAnswered;
  }

  #hear(voter: Voter, refused: readonly string[], length: string): void {
    const untilMs = systemClock.monotonicMs() + this.#rememberedForMs;
    this.#refusals.set(voter, { ids: refused, untilMs });
    for (const one of this.#voters) {
      const id = this.#idOf(one);
      if (id !== undefined && refused.includes(id)) one.unlist(this.#reason(voter, length));
    }
  }

  /** The last word of each server counts, also of one that is slow or away now. */
  #isRefused(id: string): boolean {
    const nowMs = systemClock.monotonicMs();
    return [...this.#refusals.values()].some(({ ids, untilMs }) => nowMs < untilMs && ids.includes(id));
  }

  #learn(voter: Voter, identity: Identity): void {
    if (voter.runId !== identity.runId) return;
    const known = this.#identities.get(voter);
    this.#identities.set(voter, identity);
    if (known && known.id !== identity.id) {
      // It forgot, or is another one: what was confirmed of it before says nothing.
      voter.unlist('not confirmed yet');
      this.#isOutdated = true;
    }
  }

  #idOf(voter: Voter): string | undefined {
    const known = this.#identities.get(voter);
    return known?.runId === voter.runId ? known?.id : undefined;
  }

  /** Two servers of one identity, as by a copied folder, would count as one. */
  #isCopy(voter: Voter, id: string): boolean {
    return this.#voters.some(
      (other) => other.index < voter.index && other.runId !== voter.runId && this.#idOf(other) === id,
    );
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

const unwritable = (cause: unknown) =>
  `as it does not note the servers of this list (${reasonOf(cause)}). With an ACL, allow ~${CHANNEL_PREFIX}*`;

const COPIED = `as it has the identity of another server, by copied data. Delete ${KEY} on one of them`;
