/** Ends the holder of a slot that a writer has taken from readers. */
const WRITER_MARK = ':w';

/**
 * The holder of an acquisition: the session of its process, a number, and the mark of a writer. Other processes see from
 * the mark which slots of a process are those of its writer. The instance does not show it: a process may read and wait to
 * write the same key, and two processes may have the same instance.
 */
export const createHolder = (session: string, acquisition: number, isOfWriter = false): string =>
  `${session}:${acquisition.toString(36)}${isOfWriter ? WRITER_MARK : ''}`;

export const isOfWriter = (holder: string): boolean => holder.endsWith(WRITER_MARK);

/** Whether both are acquisitions of the same process. */
export const isSameSession = (holder: string, other: string): boolean =>
  sessionOf(holder) === sessionOf(other);

const sessionOf = (holder: string) => holder.split(':', 1)[0];
