import { Asker, type Wish } from './asker.js';
import type { Freed } from './backend.js';
import { Grant } from './grant.js';
import { type NotGranted, isConnectionLost } from './grants.js';
import type { Lease } from './lease.js';
import { Line, type LineParts } from './line.js';

/** After calls may have been missed, all who wait look within this time. */
const LOOK_WITHIN_MS = 200;

/** Those of this process who want keys that others hold, each key with a line of its own. */
export class Lines {
  readonly #parts: LineParts;
  readonly #lines = new Map<string, Line>();
  /** Those who ask once and do not stand in line. */
  readonly #passers = new Set<Asker>();

  constructor(parts: LineParts) {
    this.#parts = parts;
  }

  /** How many wait for the key. */
  countAt(storeKey: string): number {
    return this.#lines.get(storeKey)?.size ?? 0;
  }

  /** What this process holds of the key, as it passes from caller to caller. */
  grantAt(storeKey: string): Grant | undefined {
    return this.#lines.get(storeKey)?.grant;
  }

  /** Whoever waits for the key, or for any, looks when it may be free. */
  wake({ key, inMs = 0 }: Freed): void {
    if (key !== undefined) this.#lines.get(key)?.wake(inMs);
    else for (const line of this.#lines.values()) line.wake(inMs + Math.random() * LOOK_WITHIN_MS);
  }

  /** Asks until the key is granted, the time is over, or a signal ends the wait with its reason. */
  stand(wish: Wish): Promise<Lease> {
    const asker = new Asker(wish, this.#parts.clock);
    this.#lineOf(wish).join(asker);
    return asker.outcome;
  }

  /** Asks once, for who does not stand in line. */
  async askOnce(wish: Wish): Promise<Lease | NotGranted> {
    const { agenda, clock, grants, giveBack, instance } = this.#parts;
    const asker = new Asker(wish, clock);
    const { key, storeKey, leaseMs } = wish;
    // The holder of a question whose connection was lost is being given back, so the next one is another.
    const ask = (hear: (heard: Grant | NotGranted) => void) => {
      const request = { key: storeKey, holder: grants.newHolder(), leaseMs, instance };
      grants.ask({ key, request, waitMs: 0 }, { hear });
    };
    const answer = new Promise<Grant | NotGranted>((resolve) =>
      ask((heard) => (isConnectionLost(heard) && !asker.isSettled ? ask(resolve) : resolve(heard))),
    );
    asker.listen({ sendAway: (_, reason) => asker.refused(reason, agenda) });
    this.#passers.add(asker);
    try {
      const heard = await Promise.race([answer, asker.outcome]);
      return heard instanceof Grant ? this.#granted(heard, asker) : heard;
    } catch (reason) {
      void answer.then((late) => {
        if (late instanceof Grant) giveBack.release(late.claim, late.lastsUntilMs);
      });
      throw reason;
    } finally {
      this.#passers.delete(asker);
      asker.leave(agenda);
    }
  }

  /** Sends away everybody. */
  sendAllAway(reason: unknown): void {
    for (const line of [...this.#lines.values()]) line.sendAllAway(reason);
    for (const passer of this.#passers) passer.refused(reason, this.#parts.agenda);
  }

  #granted(grant: Grant, { wish, waitedMs }: Asker): Lease {
    const { events, holdings } = this.#parts;
    const lease = holdings.take(grant, wish);
    this.#lineOf(wish).adopt(grant);
    events.emit('acquired', { key: wish.key, fencingToken: lease.fencingToken, waitedMs });
    return lease;
  }

  #lineOf(wish: Wish): Line {
    const { storeKey } = wish;
    let line = this.#lines.get(storeKey);
    if (!line) {
      line = new Line(wish, this.#parts, this.#forget);
      this.#lines.set(storeKey, line);
    }
    return line;
  }

  readonly #forget = (storeKey: string, line: Line): void => {
    if (this.#lines.get(storeKey) === line) this.#lines.delete(storeKey);
  };
}
