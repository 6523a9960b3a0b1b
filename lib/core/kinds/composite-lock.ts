import type { ReleaseResult } from '../backend-results.js';
import { foreignKeyError, lockReleasedError, outerReleasedError } from '../error-factories.js';
import { LockLostError } from '../errors.js';
import { AbortableLock } from '../leases/abortable-lock.js';
import type { HeldLock } from '../leases/held-lock.js';
import { LockHandle } from '../leases/lock-handle.js';
import { type CurrentHandle, type EndEventParts, publishEnd } from '../leases/lease-end-events.js';
import { type InternalLock, releaseForCaller } from '../leases/internal-lock.js';
import type { ReleaseListener } from '../leases/releaser.js';
import { hasOpenTransaction } from '../open-transactions.js';

/** A lease or another lock of which a composite lock consists. */
export type LockPart = Omit<InternalLock, 'storeKeys' | 'purpose' | 'warnOfOpenTransaction' | 'release'>;

export interface CompositeLockOptions<Part extends LockPart = LockPart> {
  readonly key: string;
  readonly label: string | undefined;
  readonly storeKeys: string | readonly string[];
  readonly parts: readonly [Part, ...Part[]];
  readonly waitedMs: number;
  readonly publisher: EndEventParts;
}

/**
 * A lock that consists of other locks: it is held while all of them are held. Its parts publish no events of their own
 * about how they were acquired and how they end, so that a caller sees one lock.
 */
export abstract class CompositeLock<Part extends LockPart = LockPart>
  extends AbortableLock
  implements InternalLock, CurrentHandle
{
  readonly key: string;
  readonly label: string | undefined;
  readonly storeKeys: string | readonly string[];
  readonly purpose = 'lock';
  readonly waitedMs: number;
  readonly acquiredAtMs: number;
  protected readonly parts: readonly [Part, ...Part[]];
  readonly #publisher: EndEventParts;
  #isReleased = false;
  #hasPublishedEnd = false;
  #hasReleasedParts = false;

  constructor({ key, label, storeKeys, parts, waitedMs, publisher }: CompositeLockOptions<Part>) {
    super();
    this.key = key;
    this.label = label;
    this.storeKeys = storeKeys;
    this.parts = parts;
    this.waitedMs = waitedMs;
    this.acquiredAtMs = publisher.clock.monotonicMs();
    this.#publisher = publisher;
    for (const part of parts) part.addView(this);
  }

  get keys(): readonly string[] {
    return [this.key];
  }

  get permit(): number {
    return 0;
  }

  get fencingToken(): bigint {
    return this.parts[0].fencingToken;
  }

  get eventToken(): bigint {
    return this.parts[0].eventToken;
  }

  fencingTokenOf(key: string): bigint {
    if (key === this.key) return this.fencingToken;
    throw foreignKeyError(key, this.keys);
  }

  get isHeld(): boolean {
    return !this.#isReleased && this.parts.every((part) => part.isHeld);
  }

  get isLost(): boolean {
    return !this.#isReleased && this.parts.some((part) => part.isLost || !part.isHeld);
  }

  isValid(): boolean {
    // Asks each part, because a part that is in doubt asks the store.
    return !this.#isReleased && this.parts.filter((part) => !part.isValid()).length === 0;
  }

  remainingMs(): number {
    return this.isValid() ? Math.min(...this.parts.map((part) => part.remainingMs())) : 0;
  }

  throwIfLost(): void {
    if (this.#isReleased) throw lockReleasedError(this.key);
    for (const part of this.parts) part.throwIfLost();
  }

  async extend(leaseMs: number): Promise<void> {
    if (this.#isReleased) throw lockReleasedError(this.key);
    const extensions = await Promise.allSettled(this.parts.map((part) => part.extend(leaseMs)));
    for (const extension of extensions) if (extension.status === 'rejected') throw extension.reason;
    this.throwIfLost();
  }

  detectLoss(): void {
    for (const part of this.parts) part.detectLoss();
  }

  uses(held: HeldLock): boolean {
    return this.parts.some((part) => part.uses(held));
  }

  /** Called by a part that was lost, and when the application ends. */
  override abort(reason: Error): void {
    if (this.#isReleased) return;
    super.abort(reason);
    if (!(reason instanceof LockLostError)) return;
    this.#publishLost(reason);
    // Its other parts are of no use any more. They are not released, because the work may still run.
    for (const part of this.parts) if (part instanceof LockHandle) part.stopRenewing();
  }

  release(): Promise<boolean> {
    return releaseForCaller(this);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Never rejects, so that it cannot hide how the work ended.
    await this.release().catch(() => undefined);
  }

  startRelease({ onResult, onSent }: ReleaseListener): void {
    this.#isReleased = true;
    this.abortViews(() => outerReleasedError(this.key));
    this.#releaseParts({
      onSent,
      onResult: (result) => {
        if (!this.#hasPublishedEnd) publishEnd(this.key, this, result, this.#publisher);
        this.#hasPublishedEnd = true;
        onResult?.(result);
      },
    });
  }

  releaseLost(onSent?: () => void): void {
    if (this.#hasReleasedParts) onSent?.();
    else this.#releaseParts({ onSent, onResult: onSent });
  }

  loseWithoutRelease(reason: LockLostError): void {
    if (this.#isReleased) return;
    for (const part of this.parts) part.loseWithoutRelease(reason);
  }

  warnOfOpenTransaction(): void {
    const { key, eventToken: fencingToken } = this;
    if (hasOpenTransaction(this))
      this.#publisher.events.emit('transaction-open', { key, fencingToken }, this);
  }

  #publishLost(error: LockLostError): void {
    if (this.#hasPublishedEnd) return;
    this.#hasPublishedEnd = true;
    const { key, eventToken: fencingToken } = this;
    this.#publisher.events.emit('lost', { key, fencingToken, error }, this);
  }

  /** Releases each part, once. The listener gets the worst result of all. */
  #releaseParts(listener: ReleaseListener): void {
    this.#hasReleasedParts = true;
    let unsent = this.parts.length;
    const results: ReleaseResult[] = [];
    for (const part of this.parts) {
      let [isSent, hasResult] = [false, false];
      const onSent = () => {
        if (isSent) return;
        isSent = true;
        unsent -= 1;
        if (unsent === 0) listener.onSent?.();
      };
      const onResult = (result: ReleaseResult) => {
        onSent();
        // A part that was lost calls back when its release is sent, and again with its result.
        if (hasResult) return;
        hasResult = true;
        results.push(result);
        if (results.length === this.parts.length) listener.onResult?.(worstOf(results));
      };
      part.removeView(this);
      if (part.isHeld) part.startRelease({ onSent, onResult });
      else part.releaseLost(() => onResult({ kind: 'gone' }));
    }
  }
}

/** A lost part makes the whole lost, and a part without a result leaves the whole in doubt. */
const worstOf = (results: readonly ReleaseResult[]): ReleaseResult =>
  results.find(({ kind }) => kind === 'gone') ??
  results.find(({ kind }) => kind === 'unknown') ?? { kind: 'released' };
