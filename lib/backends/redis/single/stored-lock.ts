/** How long the newest claimed tick of a job is remembered: longer than any two of its ticks can be apart. */
export const TICK_MEMORY_MS = 400 * 24 * 60 * 60 * 1_000;
/** How long a released key is reserved for the first waiter. If that waiter died, the others lose this time and not a lease. */
export const RESERVATION_MS = 250;

/**
 * How the script reads a lock: a text of columns, which are
 *
 * - 1: whether the key may have a wait queue (1);
 * - 3 to 18: the newest fencing token that is in use;
 * - 20 to 35: until when the lock is held;
 * - 37 to 52: the fencing token of its grant; 0 means that the lock is reserved for the first waiter;
 * - 54 to 69: the newest claimed tick in ms, then its attempt in three digits (000: a run of it has ended);
 * - from 71: the holder, since when it holds the lock, and its instance.
 *
 * The text outlives the grant, to remember the newest fencing token. Times are in µs like tokens, and both have the same
 * width, so that they can be compared as text.
 */
export const READ_LOCK = `
  local function hasQueue(lock) return byte(lock) == 49 end
  local function lastOf(lock) return sub(lock, 3, 18) end
  local function untilOf(lock) return sub(lock, 20, 35) end
  local function tokenOf(lock) return sub(lock, 37, 52) end
  local function tickOf(lock) return sub(lock, 54, 69) end
  local function remainingMs(lock) return (tonumber(untilOf(lock)) - nowUs) / 1000 end
  local windowEnd = after(${RESERVATION_MS} * 1000)
  -- A reservation never lasts longer than its window, even if the clock was set back.
  local function isHeld(lock)
    return lock and untilOf(lock) > now and (tokenOf(lock) ~= never or untilOf(lock) <= windowEnd)
  end
  local function names(lock, holder)
    return find(lock, holder, 71, true) == 71 and byte(lock, 71 + #holder) == 32
  end
  local function isOf(lock, holder) return isHeld(lock) and names(lock, holder) end
  local function isGrantedTo(lock, holder) return isOf(lock, holder) and tokenOf(lock) ~= never end
`;
