import type { LoggerService } from '@nestjs/common';
import type { Clock } from '../core/clock.js';
import { LockConfigError } from '../core/errors.js';
import type { LockEventListeners } from '../core/events.js';
import { formatReason } from '../core/format.js';

/** Warnings about a store that is down are logged once in this time, however many requests fail. */
const REPEATED_WARNING_PAUSE_MS = 10_000;

/** The listeners that log the events an operator must see. All other events go to the diagnostics channels only. */
export function createLogListeners(
  logger: Pick<LoggerService, 'log' | 'warn' | 'error' | 'debug'>,
  clock: Clock,
): LockEventListeners {
  const warnOfStore = throttleLog(clock, (text) => void logger.warn(text));
  const warnOnce = logOnce((text) => void logger.warn(text));
  return {
    lost: ({ error }) => void logger.error(error.message),
    'transaction-open': ({ key }) =>
      warnOnce(
        `Lock "${key}" is released before the COMMIT of an open transaction, so the next holder reads old values. Take the lock ` +
          `first: put @Locked() above @Transactional(), or call withLockedTransaction(dataSource, key, work) outside of ` +
          `transactions. Further locks like this one are not logged.`,
      ),
    unavailable: ({ key, operation, cause }) =>
      warnOfStore(
        cause instanceof LockConfigError
          ? cause.message
          : `The store did not answer (${operation} "${key}"): ${formatReason(cause)}`,
      ),
    'renewal-failed': ({ key, remainingMs, cause }) =>
      warnOfStore(
        `Could not renew lock "${key}", which stays valid for ${Math.round(remainingMs)} ms: ${formatReason(cause)}`,
      ),
    'server-away': ({ server, fault, voting, needed, servers }) =>
      void logger.warn(
        `Redis server ${server} ${fault}. ${voting} of ${servers} servers can vote, and a lock needs ${needed} votes.`,
      ),
    'server-back': ({ server, voting, needed, servers }) =>
      void logger.log(
        `Redis server ${server} is back. ${voting} of ${servers} servers can vote, and a lock needs ${needed} votes.`,
      ),
    'tick-skipped': ({ job, tick, reason }) =>
      void logger.debug?.(`Skipped the tick ${tick.toISOString()} of the job "${job}": ${reason}.`),
    'run-overdue': ({ job, instance, since, remainingMs, isBlocking }) => {
      const [began, endsInMs] = [since.toISOString(), Math.round(remainingMs)];
      logger.warn(
        isBlocking
          ? `Ticks of the job "${job}" are skipped: ${instance}, which has run it since ${began}, no longer renews its lease ` +
              `and has probably died. The job becomes free in ${endsInMs} ms.`
          : `A run of the job "${job}" has probably died: ${instance}, which began it at ${began}, no longer renews its lease. ` +
              `Its lease ends in ${endsInMs} ms.`,
      );
    },
    elected: ({ election, term }) =>
      void logger.log(`This process now leads "${election}" (term ${term.toString()}).`),
    revoked: ({ election, term, reason }) =>
      void logger.log(`This process no longer leads "${election}" (term ${term.toString()}): ${reason}.`),
    'leader-failed': ({ election, method, error }) =>
      void logger.error(
        `${method} threw in a term as leader of "${election}". The error does not end the term, and the method is not called ` +
          `again in it: ${formatReason(error)}`,
      ),
    'leader-overran': ({ election, methods }) =>
      void logger.error(
        `${methods.join(', ')} did not end after the signal of the term as leader of "${election}" had aborted. The ` +
          `leadership is not released; its lease expires. This process does not campaign again before this work has ended.`,
      ),
    stalled: ({ lateMs, leaseMs, held }) =>
      void logger.warn(
        `The event loop was blocked for ${Math.round(lateMs)} ms while ${held} locks were held, some with a lease of ` +
          `${leaseMs} ms. Raise leaseMs, or move long computations out of this process.`,
      ),
  };
}

/** Logs the first text and drops all others. */
function logOnce(log: (text: string) => void): (text: string) => void {
  let isLogged = false;
  return (text) => {
    if (!isLogged) log(text);
    isLogged = true;
  };
}

/** Logs the first text at once, and then at most one in each pause, with the number of texts that were dropped. */
function throttleLog(clock: Clock, log: (text: string) => void): (text: string) => void {
  let loggedAtMs = -Infinity;
  let suppressedCount = 0;
  return (text) => {
    const nowMs = clock.monotonicMs();
    if (nowMs - loggedAtMs < REPEATED_WARNING_PAUSE_MS) {
      suppressedCount += 1;
      return;
    }
    log(suppressedCount > 0 ? `${text} (and ${suppressedCount} more like it)` : text);
    loggedAtMs = nowMs;
    suppressedCount = 0;
  };
}
