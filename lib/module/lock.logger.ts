import type { LoggerService } from '@nestjs/common';
import type { Clock } from '../core/clock.js';
import { LockConfigError } from '../core/errors.js';
import type { LockEventListeners } from '../core/events.js';
import { formatReason } from '../core/format.js';

/** A store that is down is told of once in so long, however many ask. */
const REPEATED_WARNING_PAUSE_MS = 10_000;

/** Tells the log what a person must see; the rest goes to the channels alone. */
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
        `Could not renew "${key}", which is ours for ${Math.round(remainingMs)} ms more: ${formatReason(cause)}`,
      ),
    'server-away': ({ server, fault, voting, needed, servers }) =>
      void logger.warn(
        `Redis server ${server} ${fault}. Of ${servers} servers ${voting} can agree on a lock, and ${needed} must.`,
      ),
    'server-back': ({ server, voting, needed, servers }) =>
      void logger.log(
        `Redis server ${server} is back. Of ${servers} servers ${voting} can agree on a lock, and ${needed} must.`,
      ),
    'tick-skipped': ({ job, tick, reason }) =>
      void logger.debug?.(`Skipped the tick ${tick.toISOString()} of the job "${job}": ${reason}.`),
    'run-overdue': ({ job, instance, since, remainingMs, isBlocking }) => {
      const [began, endsInMs] = [since.toISOString(), Math.round(remainingMs)];
      logger.warn(
        isBlocking
          ? `Ticks of the job "${job}" are skipped: ${instance}, which has run it since ${began}, no longer renews its lease ` +
              `and has probably died. The job is free in ${endsInMs} ms.`
          : `A run of the job "${job}" has probably died: ${instance}, which began it at ${began}, no longer renews its lease. ` +
              `Its lease ends in ${endsInMs} ms.`,
      );
    },
    elected: ({ election, term }) =>
      void logger.log(`Leads "${election}" from now on (term ${term.toString()}).`),
    revoked: ({ election, term, reason }) =>
      void logger.log(`Leads "${election}" no more (term ${term.toString()}): ${reason}.`),
    'leader-failed': ({ election, method, error }) =>
      void logger.error(
        `${method} threw as leader of "${election}", which ends no term. It is not called again in this one: ` +
          formatReason(error),
      ),
    'leader-overran': ({ election, methods }) =>
      void logger.error(
        `${methods.join(', ')} did not end though the signal of the term as leader of "${election}" has aborted. The ` +
          `leadership is not given back, but lapses, and this process does not stand again before they end.`,
      ),
    stalled: ({ lateMs, leaseMs, held }) =>
      void logger.warn(
        `The event loop was blocked for ${Math.round(lateMs)} ms while ${held} locks were held, some with a lease of ` +
          `${leaseMs} ms. Raise leaseMs, or move long computations out of this process.`,
      ),
  };
}

/** Passes on the first text alone. */
function logOnce(log: (text: string) => void): (text: string) => void {
  let isLogged = false;
  return (text) => {
    if (!isLogged) log(text);
    isLogged = true;
  };
}

/** Passes the first text on at once, and then at most one in a pause, with the count of those kept back. */
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
