import { systemClock } from '../../../../core/clock.js';
import { type CallReply, MAX_CALL_MS, ServerCall, type ServerRequest } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';

/**
 * Sends requests to one server. Resolves with its reply, or with `undefined` if it cannot be reached or does not reply. The
 * server refuses a call that arrives after `untilMs`, or more than `MAX_CALL_MS` after it was sent.
 */
export const sendTo = (server: QuorumServer, requests: readonly ServerRequest[], untilMs: number) =>
  new Promise<CallReply | undefined>((resolve) => {
    const listener = {
      onReply: (_: QuorumServer, callReply: CallReply) => resolve(callReply),
      onFailure: () => resolve(undefined),
    };
    const latestMs = Math.min(untilMs, systemClock.monotonicMs() + MAX_CALL_MS);
    if (!server.send(new ServerCall(requests), latestMs, listener)) resolve(undefined);
  });
