/**
 * A lock on one server of a quorum is a text of columns:
 *
 * - 1 to 16: the newest token that is in use;
 * - 18 to 33: the newest claimed tick in ms, then its attempt in three digits (000: a run of it has ended);
 * - 35 to 50: until when the last run of that tick was certainly alive;
 * - 52 to 67, 69 to 84, 86 to 101: the token of the holder, since when it holds the lock, and for how long;
 * - 103: a mark: `-` not held, `1` a tick claim that has not marked its tick yet, `0` held otherwise;
 * - 105 to 120: until when somebody waits;
 * - from 122: the holder, its first ballot, the runner of the newest tick (`-`: none), whether the key was paused (`P`) or
 *   resumed (`R`) last, with the version of that (`-`: neither), and the holder's instance.
 *
 * Times are in µs like tokens, and both have the same width, so that they can be compared as text.
 */

/** Empty columns: a time or token, and a tick. */
export const NEVER = '0'.repeat(16);
export const NO_TICK = ' '.repeat(16);
/** A time in µs that never comes, in 16 digits. */
export const FOREVER = '9'.padEnd(16, '0');

/** The columns of a lock that is not held: token, since, lease, mark. */
export const NOT_HELD = `${NEVER} ${NEVER} ${NEVER} -`;
/** The columns after the newest token, in a lock that is free and has neither a tick nor waiters. */
export const IDLE = `${NO_TICK} ${NEVER} ${NOT_HELD} ${NEVER} `;
