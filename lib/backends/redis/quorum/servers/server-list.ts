import { type Moment, type Timer, clocksAgree, momentOf, systemClock } from '../../../../core/clock.js';
import { formatReason } from '../../../../core/format.js';
import { withTimeout } from '../../../../core/requests/store-timeout.js';
import { CHANNEL_PREFIX } from '../../notifications.js';
import { type ScriptRunner, evaluate } from '../../script-runner.js';
import { MAX_CALL_MS } from '../server-call.js';
import type { QuorumServer } from './quorum-server.js';
import { SERVER_LIST_KEY, SERVER_LIST_SCRIPT } from './server-list-script.js';

/** How long a confirmation of the server list is valid: a part of the quarantine, but at least `MIN_VALIDITY_MS`. */
const PART_OF_QUARANTINE = 1 / 4;
const MIN_VALIDITY_MS = 2_000;
const CONFIRMATIONS_PER_VALIDITY = 3;
const NEVER: Moment = { monotonicMs: 0, wallMs: 0 };

/** The last reply of a server to a confirmation, and until when it counts. */
interface ListReply {
  /** The names of the server that replied: of its present run, and of the earlier runs whose data it kept. */
  readonly names: readonly string[];
  /** How often the server had been a replica by then. */
  readonly followCount: number;
  /** The names that this server refuses, because its list is full. */
  readonly refused: readonly string[];
  readonly untilMs: number;
}

/**
 * Ensures that two processes never both get a majority from different lists of servers. A server has a vote only if no
 * server that replies counts others in its place. This is confirmed periodically. Each server remembers its list until all
 * leases that depend on the last confirmation have ended. A server is named by its run id, because several addresses may
 * lead to one server, and a copy of its data is another server; and by the database and key prefix, because one server keeps
 * other locks under others. After a restart, a process that saw the restart sends the earlier names whose data the server
 * kept.
 */
export class ServerList {
  readonly #servers: readonly QuorumServer[];
  readonly #validForMs: number;
  readonly #rememberedForMs: number;
  readonly #replies = new Map<QuorumServer, ListReply>();
  /** Replies of servers that have lost their data since: in a restart, or as replicas. */
  #forgottenReplies: readonly ListReply[] = [];
  #isOpen = false;
  /** Whether all servers were tried to connect, so that no server which could refuse is left out. */
  #wereServersTried = false;
  #confirmedUntilMs = -Infinity;
  #confirmedAt: Moment = NEVER;
  #confirming: Promise<void> | undefined;
  readonly #late = new Set<QuorumServer>();
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

  /** Whether the last confirmation still counts. A process that was stopped for long must confirm again first. */
  get isConfirmed(): boolean {
    const now = momentOf(systemClock);
    // If this machine slept, only its wall clock went on, as did the clocks of the servers.
    return now.monotonicMs < this.#confirmedUntilMs && clocksAgree(this.#confirmedAt, now);
  }

  /** Must be called before `confirm`, and has no effect on a list that is open. */
  open(): void {
    this.#isOpen = true;
  }

  /** Confirms the list with all reachable servers, unless it was closed. Call it only after all servers were tried. */
  async confirm(): Promise<void> {
    if (!this.#isOpen) return;
    this.#wereServersTried = true;
    await (this.#confirming ??= this.#confirmAll());
  }

  /** Whether the server was too late for a confirmation, and has not replied to it since. */
  isLate(server: QuorumServer): boolean {
    return this.#late.has(server);
  }

  /** A server was connected or lost. */
  onServersChanged(): void {
    this.#isOutdated = true;
    if (this.#wereServersTried) void this.confirm();
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#isOpen = false;
    this.#wereServersTried = false;
    this.#confirmedUntilMs = -Infinity;
    for (const server of this.#servers) server.vote.revoke('not confirmed yet');
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
    const sentAt = momentOf(systemClock);
    const requests = present.map((server) => this.#requestConfirmation(server, { present, sentAt }));
    const confirmVotes = await Promise.all(requests);
    if (!this.#wereServersTried) return;
    this.#confirmedUntilMs = sentAt.monotonicMs + this.#validForMs;
    this.#confirmedAt = sentAt;
    if (!this.isConfirmed) this.#isOutdated = true;
    for (const confirmVote of confirmVotes) confirmVote?.();
  }

  /**
   * Returns a function that gives the server its vote; call it when all have replied. A server that replies too late gets its
   * vote with its reply, and `undefined` is returned. A refusal counts even if it comes later.
   */
  async #requestConfirmation(
    server: QuorumServer,
    { present, sentAt }: { readonly present: readonly QuorumServer[]; readonly sentAt: Moment },
  ): Promise<(() => void) | undefined> {
    const { runId } = server;
    const request = this.#sendList(server, present).then(
      ([length, ...refused]) => {
        this.#revokeVotes(refused, this.#refusalReason(server, length));
        return () => this.#confirmVote(server, runId, sentAt);
      },
      (cause: unknown) => {
        server.vote.setUnconfirmed(unwritableReason(cause));
        return undefined;
      },
    );
    if (await withTimeout(systemClock, MAX_CALL_MS, request, { awaited: true })) return request;
    this.#late.add(server);
    void request.then((confirmVote) => {
      this.#late.delete(server);
      confirmVote?.();
    });
    return undefined;
  }

  #confirmVote(server: QuorumServer, runId: string | undefined, sentAt: Moment): void {
    if (!this.#wereServersTried || runId === undefined || runId !== server.runId) return;
    if (isRefused(server, [...this.#replies.values(), ...this.#forgottenReplies])) return;
    server.vote.confirm(sentAt.monotonicMs + this.#validForMs, sentAt);
  }

  /** Returns the length of another list whose servers count, and the names that the server refuses. */
  async #sendList(server: QuorumServer, present: readonly QuorumServer[]): Promise<[string, ...string[]]> {
    // First its state, since a server that forgot its list would accept any. The replies it gave before refuse in its place.
    await server.refreshState();
    this.#keepForgottenReply(server);
    const named = present.filter((other) => !isRefused(other, this.#forgottenReplies));
    const names = [...new Set(named.map((other) => other.listNames.join(' ')))];
    const values = [SERVER_LIST_KEY, this.#rememberedForMs, this.#servers.length, ...names];
    const { listNames } = server;
    const { followCount } = server.vote;
    const run = (client: ScriptRunner) => evaluate(client, SERVER_LIST_SCRIPT, 1, values);
    const [length, ...refused] = (await server.withClient(run)) as [string, ...string[]];
    const untilMs = this.#rememberedUntilMs();
    // A server that was not named this time, because it is silent, may still reply to an earlier confirmation.
    const unnamed = this.#servers
      .filter((other) => !named.includes(other))
      .flatMap((other) => other.listNames);
    const stillRefused = this.#replies.get(server)?.refused.filter((name) => unnamed.includes(name)) ?? [];
    const reply = { names: listNames, followCount, refused: [...refused, ...stillRefused], untilMs };
    this.#replies.set(server, reply);
    return [length, ...refused];
  }

  /** If a server has lost its data, its earlier reply counts for as long as if it were given now. */
  #keepForgottenReply(server: QuorumServer): void {
    const nowMs = systemClock.monotonicMs();
    const reply = this.#replies.get(server);
    if (!reply) return;
    const isSameRun = reply.names.some((name) => server.listNames.includes(name));
    if (isSameRun && reply.followCount === server.vote.followCount) return;
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
      const [present] = server.listNames;
      if (present !== undefined && refused.includes(present)) server.vote.revoke(reason);
    }
  }

  #refusalReason({ name }: QuorumServer, length: string): string {
    const other =
      length === '0' ? 'other servers' : `${length} servers, this list has ${this.#servers.length}`;
    const seconds = Math.ceil(this.#rememberedForMs / 1_000);
    return (
      `because ${name} counts ${other} (give all processes the same list, also with the same database and keyPrefix for each ` +
      `server; a changed list or a new server counts when no process has used the old one for ${seconds} s)`
    );
  }
}

/** Whether any server has refused this one, even a server that is slow or unreachable now. */
function isRefused({ listNames }: QuorumServer, replies: readonly ListReply[]): boolean {
  const nowMs = systemClock.monotonicMs();
  return replies.some(
    ({ refused, untilMs }) => nowMs < untilMs && listNames.some((name) => refused.includes(name)),
  );
}

const unwritableReason = (cause: unknown) =>
  `because it cannot store the list of servers (${formatReason(cause)}). With an ACL, allow ~${CHANNEL_PREFIX}*`;
