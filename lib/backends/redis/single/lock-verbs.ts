import { READ_LOCK, RESERVATION_MS, TICK_MEMORY_MS } from './stored-lock.js';
import { WAIT_QUEUE } from './lock-queue.js';
import { TICK_VERBS } from './tick-verbs.js';

/** How a lock is written, for the request whose first key is KEYS[k]. */
const WRITE_LOCK = `
  local function plain(number) return format('%.0f', number) end

  -- After the clock was set back, tokens are ahead of it. They are remembered until it has passed them.
  local function memoryOf(lock, memoryMs)
    return plain(memoryMs + math.max(math.ceil((lastOf(lock) - nowUs) / 1000), 0))
  end

  -- The digit before the attempt of a paused key is that of PAUSED_ATTEMPT.
  local function isPaused(lock) return byte(lock, 67) == 53 end

  -- A pause has no time limit.
  local function write(k, lock, memoryMs)
    if isPaused(lock) then call('SET', KEYS[k], lock)
    elseif memoryMs then call('PSETEX', KEYS[k], memoryOf(lock, memoryMs), lock) else call('SET', KEYS[k], lock, 'KEEPTTL') end
  end

  local function prolong(k, lock, params)
    local memoryMs = params.memoryMs
    if tickOf(lock) ~= noTick then
      -- If the run dies, it may be retried for some time after its lease.
      local longerMs = params.leaseMs - remainingMs(lock)
      memoryMs = math.max(call('PTTL', KEYS[k]) + longerMs, memoryMs)
    end
    write(k, sub(lock, 1, 18) .. params.untilText .. sub(lock, 37), memoryMs)
  end

  -- WAIT counts replicas that have the last write of the connection, so a request that waits for them must write something.
  local function touch(k, lock) pcall('SETRANGE', KEYS[k], 0, sub(lock, 1, 1)) end

  -- When memory has run out, Redis refuses to change a text, unless the script has written before. So this writes what is there.
  local function allowWrites(k, lock)
    local memoryMs = call('PTTL', KEYS[k])
    if memoryMs >= 0 then return call('PEXPIRE', KEYS[k], math.max(memoryMs, 1)) end
    call('DEL', KEYS[k])
    call('SET', KEYS[k], lock)
  end

  local function freeTick(k, lock)
    allowWrites(k, lock)
    -- If the run is taken over, it counts as alive until now.
    local since = (tonumber(sub(lock, 67, 69)) or 0) % 500 > 0 and now .. ' ' .. never or notHeld
    call('SETRANGE', KEYS[k], 19, since)
    if hasQueue(lock) then call('SETRANGE', KEYS[k], 0, '0') end
  end

  local function free(k, lock)
    if tickOf(lock) ~= noTick then return freeTick(k, lock) end
    local failure = pcall('PSETEX', KEYS[k], memoryOf(lock, tokenMemoryMs), '0 ' .. lastOf(lock) .. ' ' .. unheld).err
    if not failure then return end
    -- When memory has run out, Redis still deletes keys. Only the server's clock then makes the next fencing token larger.
    if not find(failure, 'OOM', 1, true) then error(failure) end
    call('DEL', KEYS[k])
  end
`;

/** Where a lock is granted. */
const ACQUISITIONS = `
  local verbs = {}

  -- Writes the grant with a token above all that were granted. Replies \`granted token\`.
  local function grant(k, lock, holder, params, newTick)
    local token, last = now, params.last
    if lock and lastOf(lock) >= now then
      token = wide(tonumber(lastOf(lock)) + 1)
      last = wide(tonumber(lastOf(lock)) + params.tokenCount)
    end
    local mark = lock and hasQueue(lock) and '1 ' or '0 '
    local tick = newTick or lock and tickOf(lock) or noTick
    local memoryMs = newTick and params.rememberMs or tick == noTick and params.memoryMs or ${TICK_MEMORY_MS}
    write(k, mark .. last .. params.untilText .. token .. ' ' .. tick .. ' ' .. holder .. params.suffix, memoryMs)
    return 'granted ' .. token
  end

  -- In: leaseMs, tokenCount, and within how many ms a refused waiter retries (0: it does not wait).
  -- Out: \`granted token\`, also to the holder again; \`taken\` with the remaining ms, and \`queued\`; \`late\`.
  -- One step, so that the key is still free, and the caller still the first waiter, when the grant is written.
  function verbs.acquire(k, lock, holder, params)
    if isTooLate then return 'late' end
    if isGrantedTo(lock, holder) then
      if remainingMs(lock) < params.leaseMs then prolong(k, lock, params) else touch(k, lock) end
      return 'granted ' .. tokenOf(lock)
    end
    if isOf(lock, holder) then return grant(k, lock, holder, params) end
    local mayWait = params.retryWithinMs > 0
    if isHeld(lock) then
      if mayWait then
        enqueue(k, holder, params)
        if not hasQueue(lock) then write(k, '1' .. sub(lock, 2)) end
      end
      return 'taken ' .. plain(math.ceil(remainingMs(lock))) .. (mayWait and ' queued' or '')
    end
    local head = lock and hasQueue(lock) and firstWaiter(k)
    if head and head ~= holder then
      if mayWait then enqueue(k, holder, params) end
      freeOrReserve(k, lock)
      return 'taken ${RESERVATION_MS}' .. (mayWait and ' queued' or '')
    end
    if head then dequeue(k, holder) end
    return grant(k, lock, holder, params)
  end

  -- In: the tick with its limits. They are judged as by judgeTick in core/tick.ts; testing/laws/tick-cases.ts has
  --     the cases of both.
  -- Out: \`granted token attempt\`; \`refused reason aheadMs\` and perhaps another time in ms; \`taken\`; \`late\`.
  -- One step, so that no other replica claims the tick between the verdict and the grant.
  function verbs.claim(k, lock, holder, params)
    if isTooLate then return 'late' end
    if isGrantedTo(lock, holder) then return verbs.acquire(k, lock, holder, params) .. ' ' .. sub(lock, 67, 69) end
    local aheadMs = params.tickMs - nowUs / 1000
    local function refused(reason, more)
      return 'refused ' .. reason .. ' ' .. plain(aheadMs) .. ' ' .. (more and plain(more) or '')
    end
    local newest, attempt = lock and tonumber(sub(lock, 54, 66)), 0
    if newest then attempt = tonumber(sub(lock, 67, 69)) end
    local isFree, isUnfinished = not isHeld(lock), attempt > 0 and attempt < params.maxAttempts
    local diedLately = newest and nowUs / 1000 - math.max(newest, tonumber(untilOf(lock)) / 1000) <= params.takeoverWithinMs
    if newest and isPaused(lock) then return refused('paused') end
    if isUnfinished and isFree and diedLately and params.tickMs > newest then return refused('unfinished', newest) end
    if newest and params.tickMs <= newest then
      if params.tickMs < newest or not isUnfinished then return refused('claimed') end
      if not isFree then return refused('claimed', math.ceil(remainingMs(lock))) end
      if not diedLately then return refused('stale') end
    else
      if aheadMs > params.maxEarlyMs then
        aheadMs = math.ceil(aheadMs)
        return refused('early')
      end
      if -aheadMs > params.staleAfterMs then return refused('stale') end
      if not isFree then return 'taken ' .. plain(math.ceil(remainingMs(lock))) end
      attempt = 0
    end
    local mark = format('%03.0f', attempt + 1)
    return grant(k, lock, holder, params, format('%013.0f', params.tickMs) .. mark) .. ' ' .. mark
  end
`;

/** What becomes of a lock that is held. */
const HELD_LOCKS = `
  -- In: leaseMs, and perhaps how many more tokens the holder needs for its local handoffs.
  -- Out: \`renewed\` with the first of the new tokens, if no other process waits for the key; \`lost\`.
  -- One step, so that a lease that has ended meanwhile is not brought back.
  function verbs.renew(k, lock, holder, params)
    if not isGrantedTo(lock, holder) then return 'lost' end
    local reply, isLonger = 'renewed', remainingMs(lock) >= params.leaseMs
    if params.moreTokens and not hasQueue(lock) then
      local first = math.max(tonumber(lastOf(lock)) + 1, nowUs)
      lock = sub(lock, 1, 2) .. wide(first + params.moreTokens - 1) .. sub(lock, 19)
      reply = 'renewed ' .. wide(first)
      if isLonger then write(k, lock) end
    elseif isLonger then touch(k, lock) end
    if not isLonger then prolong(k, lock, params) end
    return reply
  end

  -- In: nothing more. Frees the key, or leaves its queue.
  -- Out: \`released\`, or \`gone\` if the holder did not hold it.
  -- One step, so that the lock of the next holder is not released.
  function verbs.release(k, lock, holder)
    if isOf(lock, holder) then
      freeOrReserve(k, lock)
      return tokenOf(lock) == never and 'gone' or 'released'
    end
    if lock and hasQueue(lock) then dequeue(k, holder) end
    return 'gone'
  end

  -- In: nothing more. The run of the tick has ended and must not be taken over. This also works after its lease.
  -- Out: \`released\`, or \`gone\` if another run has taken over already.
  -- One step, so that no replica sees the key free and the run unfinished.
  function verbs.finish(k, lock, holder)
    if not lock or tokenOf(lock) == never or not names(lock, holder) then
      if lock then touch(k, lock) end
      return 'gone'
    end
    allowWrites(k, lock)
    local ended = isPaused(lock) and '500' or '000'
    call('SETRANGE', KEYS[k], 66, ended)
    if isHeld(lock) then
      freeOrReserve(k, sub(lock, 1, 66) .. ended .. sub(lock, 70))
    else
      call('SETRANGE', KEYS[k], 36, never)
    end
    return 'released'
  end

  -- In: one of the fencing tokens of the grant, in place of the holder.
  -- Out: \`released\`, or \`gone\` if the grant does not have this token.
  -- One step, so that a later grant is not released.
  function verbs.forceRelease(k, lock, token)
    if not isHeld(lock) or tokenOf(lock) == never then return 'gone' end
    local wanted = tonumber(token)
    if wanted < tonumber(tokenOf(lock)) or wanted > tonumber(lastOf(lock)) then return 'gone' end
    freeOrReserve(k, lock)
    return 'released'
  end
`;

/** What a lock is shown as. */
const INSPECTION = `
  -- In: nothing more.
  -- Out: \`free\`, or \`held\`, the token, the remaining ms, how many are queued, the holder, since when, and its instance.
  -- One step, so that time and lock belong together.
  function verbs.inspect(k, lock)
    if not isHeld(lock) or tokenOf(lock) == never then return 'free' end
    local queued = hasQueue(lock) and call('ZCARD', KEYS[k + 1]) or 0
    return table.concat({'held', tokenOf(lock), plain(math.ceil(remainingMs(lock))), queued, sub(lock, 71)}, ' ')
  end
`;

/**
 * What the lock script does for each verb. In: which of KEYS is the first of the request, the lock (nil: none), the holder, and
 * the parameters. Out: the reply.
 */
export const LOCK_VERBS = `${READ_LOCK}${WRITE_LOCK}${WAIT_QUEUE}${ACQUISITIONS}${HELD_LOCKS}${INSPECTION}${TICK_VERBS}`;
