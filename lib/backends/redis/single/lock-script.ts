/** How long a fencing token is remembered after its lease; see docs/decisions.md for why an hour is enough. */
const TOKEN_MEMORY_MS = 60 * 60 * 1_000;
/** How long the newest claimed tick of a job is remembered: longer than any two of its ticks can be apart. */
export const TICK_MEMORY_MS = 400 * 24 * 60 * 60 * 1_000;
/** How long a released key is reserved for the first waiter. If that waiter died, the others lose this time and not a lease. */
const RESERVATION_MS = 250;
/** When the second waiter retries, in case the first did not come. */
const SECOND_WAITER_DELAY_MS = RESERVATION_MS + 5;

/**
 * Decides every request on one Redis. One script, so that any number of requests goes to the server in one call and takes
 * effect in one step, with nothing in between a check and its change.
 *
 * - In: three KEYS for each request: the lock, its wait queue in order of arrival, and the details of the waiters; or, for
 *   large batches, the lock alone. ARGV: the latest server time in µs at which an acquisition may take effect (0: any), the
 *   channel on which the caller receives notifications, how many KEYS a request has. Then for each row of requests with the
 *   same parameters: the parameters, the number of requests, and the holders.
 * - Out: the server's time in µs, which is the fencing token of each `granted` without a token of its own; then a reply for
 *   each request. `needsQueue`: nothing was done, because the request needs all three KEYS.
 * - Numbers are passed as text, because Lua prints large ones with an exponent. The only clock is the server's.
 *
 * A lock is a text of columns: whether the key may have a wait queue (1), the newest fencing token, until when the lock is
 * held, the fencing token of its grant, the newest claimed tick in ms with its attempt in three digits (000: a run of it has
 * ended); then the holder, since when it holds the lock, and its instance. Token 0 means that the lock is reserved for the
 * first waiter. The text outlives the grant, to remember the newest fencing token. Columns have a fixed width, so that they
 * can be compared as text, and times are in µs like tokens.
 *
 * Most requests are for locks without contention. They are served first with as little Lua as possible. The functions for all
 * other requests, the slow path, are created only when they are needed.
 */
export const LOCK_SCRIPT = `
local call, pcall, sub, find, byte, format = redis.call, redis.pcall, string.sub, string.find, string.byte, string.format
local function wide(number) return format('%016.0f', number) end

local clock = call('TIME')
local nowUs = clock[1] * 1000000 + clock[2]
local now, never, noTick = wide(nowUs), '0000000000000000', '                '
local notAfterUs = tonumber(ARGV[1])
local isTooLate = notAfterUs > 0 and nowUs > notAfterUs
local step = tonumber(ARGV[3])

local locks
if #KEYS == step then
  locks = {call('GET', KEYS[1])}
else
  local keys = {}
  for k = 1, #KEYS, step do keys[#keys + 1] = KEYS[k] end
  locks = call('MGET', unpack(keys))
end

local notHeld = never .. ' ' .. never

local function parseParams(text)
  local verb, leaseMs, tokenCount, retryWithinMs, rest = string.match(text, '^(%a+) ?(%d*) ?(%d*) ?(%d*) ?(.*)$')
  local params = {verb = verb}
  if verb == 'claim' then
    local names = {'tickMs', 'maxEarlyMs', 'staleAfterMs', 'maxAttempts', 'rememberMs'}
    for _, name in ipairs(names) do
      params[name], rest = string.match(rest, '^(%S+) (.*)$')
      params[name] = tonumber(params[name])
    end
  end
  if leaseMs ~= '' then
    params.leaseMs = tonumber(leaseMs)
    params.untilText = ' ' .. wide(nowUs + leaseMs * 1000) .. ' '
    params.memoryMs = leaseMs + ${TOKEN_MEMORY_MS}
  end
  if verb == 'renew' then
    params.moreTokens = tonumber(tokenCount)
  elseif tokenCount ~= '' then
    params.tokenCount, params.retryWithinMs = tonumber(tokenCount), tonumber(retryWithinMs)
    params.last = wide(nowUs + tokenCount - 1)
    params.suffix = ' ' .. now .. ' ' .. rest
    params.prefix = '0 ' .. params.last .. params.untilText .. now .. ' ' .. noTick .. ' '
  end
  return params
end

local unheld = notHeld .. ' ' .. noTick
local replies, slowPath = {now}, nil
local r, at = 1, 4
while at < #ARGV do
  local params, last = parseParams(ARGV[at]), at + 1 + ARGV[at + 1]
  local verb, prefix, suffix, memoryMs = params.verb, params.prefix, params.suffix, params.memoryMs
  local isRelease, isAcquire = verb == 'release', verb == 'acquire' and not isTooLate
  for a = at + 2, last do
    local k, lock, holder = (r - 1) * step + 1, locks[r], ARGV[a]
    if isRelease and lock and byte(lock) == 48 and byte(lock, 37) ~= 48 and byte(lock, 54) == 32 and find(lock, holder, 71, true) == 71
      and byte(lock, 71 + #holder) == 32 and sub(lock, 20, 35) > now
      and type(pcall('SETRANGE', KEYS[k], 19, notHeld)) == 'number' then
      replies[r + 1] = 'released'
    elseif isAcquire and (not lock
      or byte(lock) == 48 and find(lock, unheld, 20, true) == 20 and sub(lock, 3, 18) < now)
      and not pcall('PSETEX', KEYS[k], memoryMs, prefix .. holder .. suffix).err then
      replies[r + 1] = 'granted'
    elseif step == 1 and lock and verb ~= 'renew' and (byte(lock) == 49
      or verb == 'acquire' and params.retryWithinMs > 0 and sub(lock, 20, 35) > now) then
      replies[r + 1] = 'needsQueue'
    else
      slowPath = slowPath or {}
      slowPath[#slowPath + 1] = {r = r, k = k, holder = holder, params = params}
    end
    r = r + 1
  end
  at = last + 1
end

if slowPath then
  -- When memory has run out, Redis still deletes keys. Only the server's clock then makes the next fencing token larger.
  local function free(key, lock)
    -- If the run is taken over, it counts as alive until now.
    local since = (tonumber(sub(lock, 67, 69)) or 0) > 0 and now .. ' ' .. never or notHeld
    local done = pcall('SETRANGE', key, 19, since)
    if type(done) == 'table' then
      if sub(lock, 54, 69) ~= noTick or not find(done.err, 'OOM', 1, true) then error(done.err) end
      call('DEL', key)
    elseif byte(lock) == 49 then call('SETRANGE', key, 0, '0') end
  end

  local channel = ARGV[2]
  local function plain(number) return format('%.0f', number) end
  local function hasQueue(lock) return byte(lock) == 49 end
  local function lastOf(lock) return sub(lock, 3, 18) end
  local function untilOf(lock) return sub(lock, 20, 35) end
  local function tokenOf(lock) return sub(lock, 37, 52) end
  local function tickOf(lock) return sub(lock, 54, 69) end
  local windowEnd = wide(nowUs + ${RESERVATION_MS} * 1000)
  -- A reservation never lasts longer than its window, even if the clock was set back.
  local function isHeld(lock)
    return lock and untilOf(lock) > now and (tokenOf(lock) ~= never or untilOf(lock) <= windowEnd)
  end
  local function isOf(lock, holder)
    return isHeld(lock) and find(lock, holder, 71, true) == 71 and byte(lock, 71 + #holder) == 32
  end
  local function isGrantedTo(lock, holder) return isOf(lock, holder) and tokenOf(lock) ~= never end
  local function remainingMs(lock) return (tonumber(untilOf(lock)) - nowUs) / 1000 end

  local function write(k, lock, memoryMs)
    if memoryMs then call('PSETEX', KEYS[k], plain(memoryMs), lock) else call('SET', KEYS[k], lock, 'KEEPTTL') end
  end

  local function prolong(k, lock, params)
    local memoryMs = params.memoryMs
    if tickOf(lock) ~= noTick then memoryMs = math.max(call('PTTL', KEYS[k]), memoryMs) end
    write(k, sub(lock, 1, 18) .. params.untilText .. sub(lock, 37), memoryMs)
  end

  -- WAIT counts replicas that have the last write of the connection, so every grant or renewal must write something.
  local function touch(k, lock) pcall('SETRANGE', KEYS[k], 0, sub(lock, 1, 1)) end

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
  local function handOver(k, lock)
    local memory = ' ' .. lastOf(lock) .. ' '
    local tick = ' ' .. tickOf(lock) .. ' '
    local holder, firstChannel
    if hasQueue(lock) then holder, firstChannel = firstWaiter(k) end
    if not holder then return free(KEYS[k], lock) end
    dequeue(k, holder)
    local second, secondChannel = firstWaiter(k)
    write(k, (second and '1' or '0') .. memory .. windowEnd .. ' ' .. never .. tick .. holder .. ' ' .. now .. ' ')
    pcall('PUBLISH', firstChannel, '0 ' .. KEYS[k])
    if second then pcall('PUBLISH', secondChannel, '${SECOND_WAITER_DELAY_MS} ' .. KEYS[k]) end
  end

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

  local verbs = {}

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
      handOver(k, lock)
      return 'taken ${RESERVATION_MS}' .. (mayWait and ' queued' or '')
    end
    if head then dequeue(k, holder) end
    return grant(k, lock, holder, params)
  end

  -- Decides a tick by the same rule as judgeTick in core/tick-verdict.ts: testing/laws/tick-cases.ts has the cases of both.
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
    local diedLately = newest and nowUs / 1000 - math.max(newest, tonumber(untilOf(lock)) / 1000) <= params.staleAfterMs
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

  function verbs.release(k, lock, holder)
    if isOf(lock, holder) then
      handOver(k, lock)
      return tokenOf(lock) == never and 'gone' or 'released'
    end
    if lock and hasQueue(lock) then dequeue(k, holder) end
    return 'gone'
  end

  -- The run of the tick has ended and must not be taken over. This also works after its lease, unless another run has taken
  -- over already.
  function verbs.finish(k, lock, holder)
    local isNewest = lock and tokenOf(lock) ~= never and find(lock, holder, 71, true) == 71
      and byte(lock, 71 + #holder) == 32
    if not isNewest then return 'gone' end
    call('SETRANGE', KEYS[k], 66, '000')
    if isHeld(lock) then
      handOver(k, sub(lock, 1, 66) .. '000' .. sub(lock, 70))
    else
      call('SETRANGE', KEYS[k], 36, never)
    end
    return 'released'
  end

  function verbs.forceRelease(k, lock, token)
    if not isHeld(lock) or tokenOf(lock) == never then return 'gone' end
    local wanted = tonumber(token)
    if wanted < tonumber(tokenOf(lock)) or wanted > tonumber(lastOf(lock)) then return 'gone' end
    handOver(k, lock)
    return 'released'
  end

  function verbs.inspect(k, lock)
    if not isHeld(lock) or tokenOf(lock) == never then return 'free' end
    return 'held ' .. tokenOf(lock) .. ' ' .. plain(math.ceil(remainingMs(lock))) .. ' ' .. sub(lock, 71)
  end

  -- The time, the rest of the lease in ms, until when the last run was alive, and the newest tick with its attempt.
  function verbs.readTicks(k, lock)
    local heldForMs = isHeld(lock) and plain(math.ceil(remainingMs(lock))) or '0'
    return table.concat({now, heldForMs, lock and untilOf(lock) or never, lock and tickOf(lock) or noTick}, ' ')
  end

  function verbs.registerTicks(k, lock)
    if not lock or tickOf(lock) == noTick then
      local tick = format('%013.0f', math.floor(nowUs / 1000)) .. '000'
      local text = lock and sub(lock, 1, 53) or '0 ' .. never .. ' ' .. never .. ' ' .. never .. ' '
      write(k, text .. tick .. (lock and sub(lock, 70) or ' '), ${TICK_MEMORY_MS})
    end
    return verbs.readTicks(k, lock)
  end

  for _, one in ipairs(slowPath) do
    replies[one.r + 1] = verbs[one.params.verb](one.k, locks[one.r], one.holder, one.params)
  end
end

return replies
`;
