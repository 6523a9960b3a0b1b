import { setTimeout as sleep } from 'node:timers/promises';
import { LockLostError, LockTimeoutError, LockUnavailableError } from '../../../lib/core/errors.js';
import type { Lock } from '../../../lib/core/lock.js';
import type { AcquireOptions } from '../../../lib/core/options.js';
import { machineMs } from '../machine-clock.js';

/** From when to when a lock was surely held, on the clock of the machine. */
export interface Hold {
  readonly permit: number;
  readonly mode?: 'read' | 'write';
  readonly askedAtMs: number;
  readonly fromMs: number;
  readonly toMs: number;
}

export interface ContentionMessage {
  /** Sent first. */
  readonly isReady?: true;
  readonly held?: Hold;
  /** The name of the error of an acquisition that failed. */
  readonly failed?: string;
}

export interface Contention {
  /** One caller for each: with permits, it acquires one key, and with a mode, another one. */
  readonly callers: readonly Pick<AcquireOptions, 'permits' | 'mode'>[];
  /** How often each caller acquires it. @default until the signal aborts */
  readonly turns?: number;
}

interface Contender {
  readonly locks: {
    withLock(key: string, options: AcquireOptions, work: (lock: Lock) => Promise<void>): Promise<void>;
  };
  readonly send: (message: ContentionMessage) => void;
  readonly signal?: AbortSignal;
}

const WAIT_MS = 120_000;
const MAX_WORK_MS = 3;
/** So that a caller without a store does not keep the processor busy. */
const PAUSE_AFTER_FAILURE_MS = 20;

/** Acquires locks of several kinds again and again. */
export async function contend(
  { callers, turns = Infinity }: Contention,
  contender: Contender,
): Promise<void> {
  const call = async (kind: Contention['callers'][number]) => {
    for (let left = turns; left > 0 && !contender.signal?.aborted; left -= 1) await takeTurn(kind, contender);
  };
  contender.send({ isReady: true });
  await Promise.all(callers.map(call));
}

async function takeTurn(kind: Contention['callers'][number], { locks, send }: Contender): Promise<void> {
  const askedAtMs = machineMs();
  try {
    const key = kind.mode ? 'catalog' : 'pdf';
    await locks.withLock(key, { ...kind, waitMs: WAIT_MS }, async (lock) => {
      const fromMs = machineMs();
      await sleep(Math.random() * MAX_WORK_MS);
      const { permit } = lock;
      const toMs = machineMs();
      if (lock.isValid())
        send({ held: { permit, askedAtMs, fromMs, toMs, ...(kind.mode && { mode: kind.mode }) } });
    });
  } catch (error) {
    // A process that was stopped has lost its lock.
    if (error instanceof LockLostError) return;
    if (!(error instanceof LockUnavailableError || error instanceof LockTimeoutError)) throw error;
    send({ failed: error.name });
    await sleep(PAUSE_AFTER_FAILURE_MS);
  }
}
