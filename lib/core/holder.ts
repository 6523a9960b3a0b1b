/** Ends the holder of a slot that a writer has taken from readers. In upper case, unlike the digits of the number. */
const WRITER_MARK = 'W';

/**
 * The holder of an acquisition: the id of its process, a number, and the mark of a writer. Other processes see from
 * the mark which slots of a process are those of its writer. The instance does not show it: a process may read and wait to
 * write the same key, and two processes may have the same instance.
 */
export const createHolder = (processId: string, acquisition: number, isOfWriter = false): string =>
  `${processId}:${acquisition.toString(36)}${isOfWriter ? WRITER_MARK : ''}`;

export const isOfWriter = (holder: string): boolean => holder.endsWith(WRITER_MARK);

/** Whether both are acquisitions of the same process. */
export const isSameProcess = (holder: string, other: string): boolean =>
  processOf(holder) === processOf(other);

const processOf = (holder: string) => holder.split(':', 1)[0];
