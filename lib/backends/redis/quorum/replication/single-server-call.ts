import { systemClock } from '../../../../core/clock.js';
import { MAX_CALL_MS, ServerCall, type ServerRequest, type CallReply } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';

/** What one server says; nothing if it does not. What arrives later than `untilMs`, or very late, is refused. */
export const sendTo = (server: QuorumServer, requests: readonly ServerRequest[], untilMs: number) =>
  new Promise<CallReply | undefined>((resolve) => {
    const listener = {
      onReply: (_: QuorumServer, callReply: CallReply) => resolve(callReply),
      onFailure: () => resolve(undefined),
    };
    const latestMs = Math.min(untilMs, systemClock.monotonicMs() + MAX_CALL_MS);
    if (!server.send(new ServerCall(requests), latestMs, listener)) resolve(undefined);
  });
