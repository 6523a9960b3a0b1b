import type { Agenda } from './agenda.js';
import type { RenewAnswer } from './backend.js';
import type { Clock } from './clock.js';
import type { Events } from './events.js';
import type { Grant } from './grant.js';
import { List } from './list.js';
import { Watch } from './watch.js';

/** A lease is renewed when a third of it has passed, and after a failure each twelfth until its deadline. */
const RENEW_AFTER = 1 / 3;
const RETRY_AFTER = 1 / 12;
/** Locks that were taken together are renewed up to this part of the lease later, each at its own time. */
const SPREAD = 1 / 12;
/** Renewals within this part of the lease go together. */
const TOGETHER_WITHIN = 1 / 64;
/** An event loop that is late by this part of a lease is close to losing it. */
const ALARMING_DELAY = 1 / 6;

interface KeeperParts {
  readonly clock: Clock;
  readonly agenda: Agenda;
  readonly events: Events;
  readonly renew: (grant: Grant) => Promise<RenewAnswer>;
}

/**
 * Looks after grants until they are dropped: renews them, and notices the end of what was not. Nothing ends that early:
 * a failed renewal is published and tried again until the lease's own deadline, and an answer about what was dropped is
 * ignored.
 */
export class Keeper {
  readonly #parts: KeeperParts;
  readonly #watches = new List<Watch<Grant>>();
  #toldOfStallAtMs = -Infinity;

  constructor(parts: KeeperParts) {
    this.#parts = parts;
  }

  get grants(): readonly Grant[] {
    return Array.from(this.#watches, ({ kept }) => kept);
  }

  get count(): number {
    return this.#watches.size;
  }

  keep(grant: Grant): void {
    const watch = new Watch(grant, grant.isRenewed ? dueMs(grant) : Infinity, this.#look);
    watch.listed = this.#watches.add(watch);
    grant.watch = watch;
    this.#plan(watch);
  }

  drop(grant: Grant): void {
    const { watch } = grant;
    if (!watch) return;
    grant.watch = undefined;
    watch.listed?.leave();
    this.#parts.agenda.remove(watch);
  }

  /** Its lease may end earlier than was known. */
  replan(grant: Grant): void {
    const { watch } = grant;
    if (!watch) return;
    this.#parts.agenda.remove(watch);
    this.#plan(watch);
  }

  /** Renews it no more. Its end is noticed as ever. */
  stopRenewing(grant: Grant): void {
    const { watch } = grant;
    if (!watch) return;
    grant.isRenewed = false;
    watch.renewAtMs = Infinity;
    this.replan(grant);
  }

  #plan(watch: Watch<Grant>): void {
    watch.atMs = Math.min(watch.renewAtMs, watch.kept.validUntilMs);
    this.#parts.agenda.add(watch);
  }

  readonly #look = (watch: Watch<Grant>): void => {
    const grant = watch.kept;
    const nowMs = this.#parts.clock.monotonicMs();
    this.#noticeStall(grant, nowMs - watch.atMs);
    grant.tenant?.noticeEnd();
    if (!this.#isKept(watch)) return;
    if (nowMs >= watch.renewAtMs) {
      watch.renewAtMs = Infinity;
      void this.#renew(watch);
    }
    this.#plan(watch);
  };

  async #renew(watch: Watch<Grant>): Promise<void> {
    const { renew, events, clock } = this.#parts;
    const grant = watch.kept;
    const answer = await renew(grant);
    if (!this.#isKept(watch) || !grant.tenant) return;
    const { key } = grant;
    const { fencingToken } = grant.tenant;
    if (answer.kind === 'renewed') {
      watch.failures = 0;
      watch.renewAtMs = dueMs(grant);
      events.emit('renewed', { key, fencingToken });
    } else if (answer.kind === 'unknown') {
      watch.failures += 1;
      watch.renewAtMs = clock.monotonicMs() + grant.leaseMs * RETRY_AFTER * (0.5 + Math.random() / 2);
      const { failures } = watch;
      const remainingMs = grant.tenant.remainingMs();
      events.emit('renewal-failed', { key, fencingToken, failures, remainingMs, cause: answer.cause });
    }
    // Who heard of it may have given it back.
    if (!this.#isKept(watch)) return;
    if (!grant.isRenewed) watch.renewAtMs = Infinity;
    this.replan(grant);
  }

  /** Told once for all that a blocked event loop kept waiting. */
  #noticeStall({ leaseMs }: Grant, lateMs: number): void {
    const nowMs = this.#parts.clock.monotonicMs();
    if (lateMs < leaseMs * ALARMING_DELAY || nowMs - this.#toldOfStallAtMs < lateMs) return;
    this.#toldOfStallAtMs = nowMs;
    this.#parts.events.emit('stalled', { lateMs, leaseMs, held: this.count });
  }

  #isKept(watch: Watch<Grant>): boolean {
    return watch.kept.watch === watch;
  }
}

function dueMs({ confirmedAtMs, leaseMs }: Grant): number {
  const atMs = confirmedAtMs + leaseMs * (RENEW_AFTER + Math.random() * SPREAD);
  const stepMs = leaseMs * TOGETHER_WITHIN;
  return Math.ceil(atMs / stepMs) * stepMs;
}
