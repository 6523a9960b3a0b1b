import { deadlineIn } from '../../../core/requests/deadline.js';
import { type Keyspace, entryAt } from '../keyspace.js';
import type { Session } from '../session/session.js';
import { getEphemerals, remove } from '../wire/operations.js';
import { CODE, unlessCode } from '../wire/zookeeper-errors.js';
import type { OwnEntries, OwnEntry } from './own-entries.js';

const TIMEOUT_MS = 5_000;

/**
 * Deletes the entries of a session that this process does not know. After restarts of its servers, ZooKeeper may have lost a
 * deletion that it had confirmed. Such an entry would keep others waiting for as long as the session lasts.
 *
 * Each entry that may be granted is known from before its creation until it is deleted.
 *
 * @see https://issues.apache.org/jira/browse/ZOOKEEPER-4785
 */
export async function deleteUnknownEntries(
  session: Session,
  { keyspace, ownEntries }: { readonly keyspace: Keyspace; readonly ownEntries: OwnEntries },
): Promise<void> {
  const deadline = deadlineIn(TIMEOUT_MS);
  const paths = await session.await(session.send(getEphemerals(keyspace.locks)), deadline);
  // Nothing is known any more.
  if (session.isEnded) return;
  const unknown = paths.filter((path) => {
    const entry = entryAt(path);
    return entry !== undefined && !isKnown(ownEntries.find(entry), path);
  });
  const deletions = unknown.map((path) => unlessCode(session.send(remove(path)), CODE.noNode));
  await session.await(Promise.all(deletions), deadline);
}

/** Of an entry whose creation has no reply, the path is not known yet. */
const isKnown = (own: OwnEntry | undefined, path: string) =>
  own !== undefined && (own.path === undefined || own.path === path);
