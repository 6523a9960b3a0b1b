import type { LoggerService } from '@nestjs/common';
import type { Clock } from '../core/clock.js';
import { LockConfigError } from '../core/errors.js';
import type { LockEventListeners, LockEventMessage, LockEventName } from '../core/events.js';
import { formatReason, toOneLine } from '../core/format.js';
import { describeInversionWithStacks } from '../core/lock-order-text.js';

/** Warnings about a store that is down are logged once in this time, however many requests fail. */
const REPEATED_WARNING_PAUSE_MS = 10_000;

type Level = 'log' | 'warn' | 'error' | 'debug' | 'warnOnce' | 'warnOfStore';

/** `undefined`: nothing to log. */
type EventTexts = {
  readonly [Name in LockEventName]?: (message: LockEventMessage<Name>) => string | undefined;
};

/** The events that an operator must see. All other events go to the diagnostics channels only. */
const TEXTS: Readonly<Record<Level, EventTexts>> = {
  error: {
    lost: ({ error }) => error.message,
    'leader-failed': ({ election, method, error }) =>
      `${method} threw in a term as leader of "${election}". The error does not end the term, and the method is not called ` +
      `again in it: ${formatReason(error)}`,
    'leader-overran': ({ election, methods }) =>
      `${methods.join(', ')} did not end after the signal of the term as leader of "${election}" had aborted. The ` +
      `leadership is not released; its lease expires. This process does not campaign again before this work has ended.`,
  },
  warn: {
    'order-inverted': describeInversionWithStacks,
    'server-away': ({ server, fault, voting, needed, servers }) =>
      `Redis server ${server} ${fault}. ${voting} of ${servers} servers can vote, and a lock needs ${needed} votes.`,
    'permits-differ': ({ key, permits, otherPermits }) =>
      `Calls for "${key}" ask for ${permits} and for ${otherPermits} permits. Each uses the first permits up to its number. ` +
      `Pass the same number everywhere. Further keys like this one are not logged.`,
    'run-overdue': ({ job, instance, since, remainingMs, isBlocking }) =>
      isBlocking
        ? `Ticks of the job "${job}" are skipped: ${instance}, which has run it since ${since.toISOString()}, no longer renews its ` +
          `lease and has probably died. The job becomes free in ${Math.round(remainingMs)} ms.`
        : `A run of the job "${job}" has probably died: ${instance}, which began it at ${since.toISOString()}, no longer renews ` +
          `its lease. Its lease ends in ${Math.round(remainingMs)} ms.`,
    // The scheduler logs what was thrown, but not by which job. A run that obeys its signal throws nothing.
    'tick-ended': ({ job, tick, attempt, outcome }) =>
      outcome === 'failed' || outcome === 'timed-out'
        ? `The run of the job "${job}" for the tick ${tick.toISOString()} has ` +
          `${outcome === 'failed' ? 'failed' : 'exceeded its time limit'} (attempt ${attempt}).`
        : undefined,
    stalled: ({ lateMs, leaseMs, held }) =>
      `The event loop was blocked for ${Math.round(lateMs)} ms while ${held} locks were held, some with a lease of ` +
      `${leaseMs} ms. Raise leaseMs, or move long computations out of this process.`,
  },
  warnOnce: {
    'transaction-open': ({ key }) =>
      `Lock "${key}" is released before the COMMIT of an open transaction, so the next holder reads old values. Take the lock ` +
      `first: put @Locked() or @SingletonCron() above @Transactional(), or call withLockedTransaction(dataSource, key, work) ` +
      `outside of transactions. Further locks like this one are not logged.`,
  },
  warnOfStore: {
    unavailable: ({ key, operation, cause }) =>
      cause instanceof LockConfigError
        ? cause.message
        : `The store did not answer (${operation} "${key}"): ${formatReason(cause)}`,
    'renewal-failed': ({ key, remainingMs, cause }) =>
      `Could not renew lock "${key}", which stays valid for ${Math.round(remainingMs)} ms: ${formatReason(cause)}`,
  },
  log: {
    'server-back': ({ server, voting, needed, servers }) =>
      `Redis server ${server} is back. ${voting} of ${servers} servers can vote, and a lock needs ${needed} votes.`,
    elected: ({ election, term }) => `This process now leads "${election}" (term ${term.toString()}).`,
    revoked: ({ election, term, reason }) =>
      `This process no longer leads "${election}" (term ${term.toString()}): ${reason}.`,
  },
  debug: {
    'tick-skipped': ({ job, tick, reason }) =>
      `Skipped the tick ${tick.toISOString()} of the job "${job}": ${reason}.`,
  },
};

/** The events whose texts have several lines. */
const WITH_STACKS: ReadonlySet<string> = new Set<LockEventName>(['order-inverted']);

export function createLogListeners(
  logger: Pick<LoggerService, 'log' | 'warn' | 'error' | 'debug'>,
  clock: Clock,
): LockEventListeners {
  const warn = (text: string) => void logger.warn(text);
  const logFunctions: Record<Level, (text: string) => void> = {
    error: (text) => void logger.error(text),
    warn,
    warnOnce: logOnce(warn),
    warnOfStore: throttleLog(clock, warn),
    log: (text) => void logger.log(text),
    debug: (text) => void logger.debug?.(text),
  };
  const listeners = (Object.keys(TEXTS) as Level[]).flatMap((level) =>
    Object.entries(TEXTS[level]).map(([name, textOf]) => {
      const format = textOf as (message: unknown) => string | undefined;
      const onEvent = (message: unknown) => {
        const text = format(message);
        if (text !== undefined) logFunctions[level](WITH_STACKS.has(name) ? text : toOneLine(text));
      };
      return [name, onEvent];
    }),
  );
  return Object.fromEntries(listeners) as LockEventListeners;
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
