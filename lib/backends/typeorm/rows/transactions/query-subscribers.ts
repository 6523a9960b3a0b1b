import type { QueryRunner } from 'typeorm';
import { shareAcrossCopies } from '../../../../core/package-copies.js';

type Broadcaster = QueryRunner['broadcaster'];

/** The place of the driver's error among the arguments of `broadcastAfterQueryEvent`. */
const ERROR = 6;

const watched = shareAcrossCopies('watched broadcasters', () => new WeakSet<Broadcaster>());
const errors = shareAcrossCopies('errors of query subscribers', () => new WeakSet<object>());

/**
 * Makes {@link isQuerySubscriberError} know the errors of subscribers to `afterQuery`. TypeORM throws them as if they were the
 * answer of the database to the statement, which has been executed.
 */
export function watchQuerySubscribers({ broadcaster }: QueryRunner): void {
  if (watched.has(broadcaster)) return;
  watched.add(broadcaster);
  const broadcast = broadcaster.broadcastAfterQueryEvent.bind(broadcaster);
  broadcaster.broadcastAfterQueryEvent = (...event) => {
    const [{ promises }, , , isSuccess] = event;
    const firstIndex = promises.length;
    // After an error that a subscriber has thrown at once, TypeORM calls the subscribers again, with that error.
    const isExecuted = isSuccess || isQuerySubscriberError(event[ERROR]);
    try {
      broadcast(...event);
    } catch (error) {
      if (isExecuted) throwRemembered(error);
      throw error;
    } finally {
      // Also those of subscribers before one that has thrown.
      const own = isExecuted ? (promises.splice(firstIndex) as Promise<unknown>[]) : [];
      promises.push(...own.map((promise) => promise.catch(throwRemembered)));
    }
  };
}

/** Whether a subscriber has failed after the database had executed a statement. */
export function isQuerySubscriberError(error: unknown): boolean {
  const { driverError } = Object(error) as { driverError?: unknown };
  return [error, driverError].some((one) => errors.has(Object(one) as object));
}

function throwRemembered(error: unknown): never {
  if (Object(error) === error) errors.add(error as object);
  throw error;
}

/** Calls the listener with the answer to each COMMIT. Afterwards, an error of a subscriber to `afterQuery` may take its place. */
export function onEachCommitAnswer(
  { broadcaster }: QueryRunner,
  listener: (isSuccess: boolean, error: unknown) => void,
): void {
  const broadcast = broadcaster.broadcastAfterQueryEvent.bind(broadcaster);
  broadcaster.broadcastAfterQueryEvent = (...event) => {
    const [, query, , isSuccess] = event;
    if (query === 'COMMIT') listener(isSuccess, event[ERROR]);
    broadcast(...event);
  };
}
