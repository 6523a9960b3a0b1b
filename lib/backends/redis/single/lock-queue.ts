import { RESERVATION_MS } from './stored-lock.js';

/** When the second waiter retries, in case the first did not come. */
const SECOND_WAITER_DELAY_MS = RESERVATION_MS + 5;

/** The wait queue of a key: KEYS[k + 1] has the holders in order of arrival, KEYS[k + 2] until when each waits, and where. */
export const WAIT_QUEUE = `
  local channel = sub(header, 20)

  local function dequeue(k, holder)
    call('ZREM', KEYS[k + 1], holder)
    call('HDEL', KEYS[k + 2], holder)
  end

  local function enqueue(k, holder, params)
    call('ZADD', KEYS[k + 1], 'NX', plain(nowUs), holder)
    call('HSET', KEYS[k + 2], holder, wide(nowUs + params.retryWithinMs * 1000) .. channel)
    call('PEXPIRE', KEYS[k + 1], params.retryWithinMs * 2)
    call('PEXPIRE', KEYS[k + 2], params.retryWithinMs * 2)
  end

  -- The first waiter and its channel. Removes waiters that have not retried in time.
  local function firstWaiter(k)
    while true do
      local holder = call('ZRANGE', KEYS[k + 1], 0, 0)[1]
      if not holder then return end
      local entry = call('HGET', KEYS[k + 2], holder)
      if entry and sub(entry, 1, 16) >= now then return holder, sub(entry, 17) end
      dequeue(k, holder)
    end
  end

  -- The lock is free now. Reserves it for the first waiter and notifies that one, and the second in case the first does not
  -- come.
  local function freeOrReserve(k, lock)
    local holder, firstChannel
    if hasQueue(lock) then holder, firstChannel = firstWaiter(k) end
    if not holder then return free(k, lock) end
    dequeue(k, holder)
    local second, secondChannel = firstWaiter(k)
    local reserved = {second and '1' or '0', lastOf(lock), windowEnd, never, tickOf(lock), holder, now, ''}
    write(k, table.concat(reserved, ' '), tickOf(lock) == noTick and tokenMemoryMs)
    pcall('PUBLISH', firstChannel, '0 ' .. KEYS[k])
    if second then pcall('PUBLISH', secondChannel, '${SECOND_WAITER_DELAY_MS} ' .. KEYS[k]) end
  end
`;
