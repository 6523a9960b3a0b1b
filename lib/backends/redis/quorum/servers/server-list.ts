import { withTimeout } from '../../../../core/requests/with-timeout.js';
import { type Moment, type Timer, clocksAgree, momentOf, systemClock } from '../../../../core/clock.js';
import { nextTurn } from '../../../../core/real-time.js';
import { formatReason } from '../../../../core/format.js';
import { CHANNEL_PREFIX } from '../../notifications.js';
import { evaluate, scriptOf } from '../../script-runner.js';
import { MAX_CALL_MS } from '../server-call.js';
import type { QuorumServer } from './quorum-server.js';

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
const MIN_VALIDITY_MS = 2_000;
const CONFIRMATIONS_PER_VALIDITY = 3;
const NEVER: Moment = { monotonicMs: 0, wallMs: 0 };

/** The last word of a server, and until when it counts. */
interface ListReply {
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
  readonly #servers: readonly QuorumServer[];
  readonly #validForMs: number;
  readonly #rememberedForMs: number;
  readonly #replies = new Map<QuorumServer, ListReply>();
  /** Those that servers forgot when they restarted. */
  #forgottenReplies: readonly ListReply[] = [];
  /** All servers have been tried, so that none which could refuse is passed over. */
  #wereServersTried = false;
  #confirmedUntilMs = -Infinity;
  #confirmedAt: Moment = NEVER;
  #confirming: Promise<void> | undefined;
  #isOutdated = false;
  #timer: Timer | undefined;

  constructor(servers: readonly QuorumServer[], quarantineMs: number) {
    this.#servers = servers;
    this.#validForMs = Math.max(quarantineMs * PART_OF_QUARANTINE, MIN_VALIDITY_MS);
    this.#rememberedForMs = Math.ceil(this.#validForMs + quarantineMs);
  }

  get isConfirming(): boolean {
    return this.#confirming !== undefined;
  }

  /** A process that stood still for long must ask the servers again before their votes count. */
  get isConfirmed(): boolean {
    const now = momentOf(systemClock);
    // Of a machine that slept only the wall clock went on, as those of the servers did.
    return now.monotonicMs < this.#confirmedUntilMs && clocksAgree(this.#confirmedAt, now);
  }

  /** All servers have been tried: asks those that are there. */
  confirm(): Promise<void> {
    this.#wereServersTried = true;
    this.#confirming ??= this.#confirmAll();
    return this.#confirming;
  }

  /** A server has come or gone. */
  onServersChanged(): void {
    this.#isOutdated = true;
    if (this.#wereServersTried) void this.confirm();
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#wereServersTried = false;
    this.#confirmedUntilMs = -Infinity;
    for (const server of this.#servers) server.revokeVote('not confirmed yet');
  }

  async #confirmAll(): Promise<void> {
    do await this.#confirmOnce();
    while (this.#isOutdated && this.#wereServersTried);
    this.#confirming = undefined;
    this.#timer?.cancel();
    if (!this.#wereServersTried) return;
    this.#timer = systemClock.after(this.#validForMs / CONFIRMATIONS_PER_VALIDITY, () => void this.confirm());
  }

  async #confirmOnce(): Promise<void> {
    this.#isOutdated = false;
    const present = this.#servers.filter(({ isReachable }) => isReachable);
    const runs = present.map(({ runId }) => runId);
    for (const server of present) this.#keepForgottenReply(server);
    // A server that forgot whom it counted has room for those until they name themselves.
    const named = present.filter((server) => !isRefused(server, this.#forgottenReplies));
    const names = [...new Set(named.map(({ runs: all }) => all.join(' ')))];
    const sentAt = momentOf(systemClock);
    for (const server of present) void server.refreshPersistence();
    const answered = await Promise.all(present.map((server) => this.#requestConfirmation(server, names)));
    if (!this.#wereServersTried) return;
    this.#confirmedUntilMs = sentAt.monotonicMs + this.#validForMs;
    this.#confirmedAt = sentAt;
    if (!this.isConfirmed) this.#isOutdated = true;
    for (const [index, server] of present.entries()) {
      const { runId } = server;
      if (!answered[index] || runId === undefined || runId !== runs[index]) continue;
      if (
        !named.includes(server) ||
        isRefused(server, [...this.#replies.values(), ...this.#forgottenReplies])
      )
        continue;
      server.confirmVote(this.#confirmedUntilMs, sentAt);
    }
  }

  /** Whether it answers in time. A refusal counts also if it comes later. */
  async #requestConfirmation(server: QuorumServer, names: readonly string[]): Promise<boolean> {
    const values = [KEY, this.#rememberedForMs, this.#servers.length, ...names];
    const { runs } = server;
    let hasAnswered = false;
    const request = server
      .withClient((client) => evaluate(client, SCRIPT, 1, values))
      .then((reply) => {
        const [length, ...refused] = reply as [string, ...string[]];
        this.#replies.set(server, { runs, refused, untilMs: this.#rememberedUntilMs() });
        this.#revokeVotes(refused, this.#refusalReason(server, length));
        hasAnswered = true;
      })
      .catch((cause: unknown) => server.setUnconfirmed(unwritableReason(cause)));
    // Where we were kept from everything meanwhile, the answer may lie there.
    if (!(await withTimeout(systemClock, MAX_CALL_MS, request, { awaited: true }))) await nextTurn();
    return hasAnswered;
  }

  /** Of a server that restarted without its data, what it said before counts for as long as if it had said so now. */
  #keepForgottenReply(server: QuorumServer): void {
    const nowMs = systemClock.monotonicMs();
    const reply = this.#replies.get(server);
    if (!reply || reply.runs.some((run) => server.runs.includes(run))) return;
    this.#replies.delete(server);
    this.#forgottenReplies = this.#forgottenReplies.filter(({ untilMs }) => nowMs < untilMs);
    if (nowMs < reply.untilMs)
      this.#forgottenReplies = [...this.#forgottenReplies, { ...reply, untilMs: this.#rememberedUntilMs() }];
  }

  #rememberedUntilMs(): number {
    return systemClock.monotonicMs() + this.#rememberedForMs;
  }

  #revokeVotes(refused: readonly string[], reason: string): void {
    for (const server of this.#servers) {
      if (server.runId !== undefined && refused.includes(server.runId)) server.revokeVote(reason);
    }
  }

  #refusalReason({ name }: QuorumServer, length: string): string {
    const other =
      length === '0' ? 'other servers' : `${length} servers, this list has ${this.#servers.length}`;
    const seconds = Math.ceil(this.#rememberedForMs / 1_000);
    return (
      `as ${name} counts ${other} (give all processes the same list; a changed list or a new server counts when no process ` +
      `has named the old one for ${seconds} s)`
    );
  }
}

/** Also by a server that is slow or away now. */
function isRefused({ runs }: QuorumServer, replies: readonly ListReply[]): boolean {
  const nowMs = systemClock.monotonicMs();
  return replies.some(({ refused, untilMs }) => nowMs < untilMs && runs.some((run) => refused.includes(run)));
}

const unwritableReason = (cause: unknown) =>
  `as it does not note the servers of this list (${formatReason(cause)}). With an ACL, allow ~${CHANNEL_PREFIX}*`;
