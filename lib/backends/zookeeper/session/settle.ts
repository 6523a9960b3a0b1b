import { systemClock } from '../../../core/clock.js';
import { deadlineIn } from '../../../core/requests/deadline.js';
import { codeOf, hasNoEffect } from '../wire/zookeeper-errors.js';
import { pause } from './await-replies.js';
import type { Session } from './session.js';

const RETRY_MS = 100;

/**
 * Resolves when a request of the session has its reply, or can no longer take effect. ZooKeeper refuses what arrives over an earlier
 * connection of a session once a later one was opened, but may still commit what was proposed before that. A write over the later
 * one is committed after it. Once the session is over, everything is refused. A
 * session that was closed in this process may still last in ZooKeeper.
 */
export async function settle(session: Session, reply: Promise<unknown>): Promise<void> {
  let isSettled = await reply.then(() => true, hasNoEffect);
  const endsAtMs = systemClock.monotonicMs() + session.maxLostMs;
  while (!isSettled && !session.isOver) {
    const leftMs = endsAtMs - systemClock.monotonicMs();
    if (leftMs <= 0) return;
    isSettled = await hasReply(session, leftMs);
    // The end of the process does not wait for a session that was closed.
    if (!isSettled) await pause(RETRY_MS, { awaited: !session.isEnded });
  }
}

/** Whether a write has its reply. If it is refused, that was decided after all writes before it. */
async function hasReply(session: Session, timeoutMs: number): Promise<boolean> {
  const deadline = deadlineIn(timeoutMs);
  try {
    await session.ready(deadline.leftMs);
    await session.await(session.heartbeat(), deadline);
    return true;
  } catch (error) {
    return codeOf(error) !== undefined;
  }
}
