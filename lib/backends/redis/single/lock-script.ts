/** How long a fencing token is remembered after its lease; see docs/decisions.md for why an hour is enough. */
const TOKEN_MEMORY_MS = 60 * 60 * 1_000;
/** How long the newest claimed tick of a job is remembered: longer than any two of its ticks are apart. */
export const TICK_MEMORY_MS = 400 * 24 * 60 * 60 * 1_000;
/** How long a key is kept for the next in line to come for it. One who died costs so much, and not a lease. */
const RESERVATION_MS = 250;
/** Who stands behind the one who was called looks when that one did not come. */
const SECOND_WAITER_DELAY_MS = RESERVATION_MS + 5;

/**
 * One script for everything, so that any number of requests goes to the server in one call and takes effect in one
 * step: nobody sees a key between the check and the change.
 *
 * - In: for each request three KEYS: the lock, its line in the order of arrival, and who stands there; or, for many at
 *   once, the lock alone. ARGV: the latest server time in µs at which an acquisition is still wanted (0: any), the channel
 *   on which the asker hears calls, how many KEYS a request has, then for each row of requests with the same terms these
 *   terms, how many they are, and their holders.
 * - Out: the server's time in µs, which is the fencing token of who was granted without one of his own; then a text for
 *   each request. \`crowded\`: nothing was done, as that takes all three KEYS.
 * - Numbers cross as text: Lua prints large ones with an exponent. Time is the server's alone.
 *
 * A lock is a text of columns: whether somebody may stand in line, the last fencing token given out, until when it is
 * held, the fencing token of its grant, the newest claimed tick in ms with the number of its attempt in three digits (000:
 * a run of it has ended); then its holder, since when, and the holder's instance.
 * Token 0 means that the lock is kept for the one whose turn it is. The text outlives the grant, as the memory of its
 * fencing token. Columns are of one width, so that they can be compared as text, and times are in µs like tokens.
 *
 * Most calls are about locks that nobody else wants, so these are served first, with as little Lua as possible; the
 * functions for all the rest are made only when they are needed.
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

local nobody = never .. ' ' .. never

local function termsFrom(text)
  local verb, leaseMs, tokenCount, retryWithinMs, bearer = string.match(text, '^(%a+) ?(%d*) ?(%d*) ?(%d*) ?(.*)$')
  local terms = {verb = verb}
  if verb == 'claim' then
    local names = {'tickMs', 'maxEarlyMs', 'staleAfterMs', 'maxAttempts', 'rememberMs'}
    for _, name in ipairs(names) do
      terms[name], bearer = string.match(bearer, '^(%S+) (.*)$')
      terms[name] = tonumber(terms[name])
    end
    terms.isRegistration, bearer = sub(bearer, 1, 1) == '1', sub(bearer, 3)
  end
  if leaseMs ~= '' then
    terms.leaseMs = tonumber(leaseMs)
    terms.untilText = ' ' .. wide(nowUs + leaseMs * 1000) .. ' '
    terms.memoryMs = leaseMs + ${TOKEN_MEMORY_MS}
  end
  if verb == 'renew' then
    terms.moreTokens = tonumber(tokenCount)
  elseif tokenCount ~= '' then
    terms.tokenCount, terms.retryWithinMs = tonumber(tokenCount), tonumber(retryWithinMs)
    terms.last = wide(nowUs + tokenCount - 1)
    terms.bearer = ' ' .. now .. ' ' .. bearer
    terms.grantee = '0 ' .. terms.last .. terms.untilText .. now .. ' ' .. noTick .. ' '
  end
  return terms
end

local unheld = nobody .. ' ' .. noTick
local answers, left = {now}, nil
local r, at = 1, 4
while at < #ARGV do
  local terms, last = termsFrom(ARGV[at]), at + 1 + ARGV[at + 1]
  local verb, grantee, bearer, memoryMs = terms.verb, terms.grantee, terms.bearer, terms.memoryMs
  local isRelease, isAcquire = verb == 'release', verb == 'acquire' and not isTooLate
  for a = at + 2, last do
    local k, lock, holder = (r - 1) * step + 1, locks[r], ARGV[a]
    if isRelease and lock and byte(lock) == 48 and byte(lock, 37) ~= 48 and byte(lock, 54) == 32 and find(lock, holder, 71, true) == 71
      and byte(lock, 71 + #holder) == 32 and sub(lock, 20, 35) > now
      and type(pcall('SETRANGE', KEYS[k], 19, nobody)) == 'number' then
      answers[r + 1] = 'released'
    elseif isAcquire and (not lock
      or byte(lock) == 48 and find(lock, unheld, 20, true) == 20 and sub(lock, 3, 18) < now)
      and not pcall('PSETEX', KEYS[k], memoryMs, grantee .. holder .. bearer).err then
      answers[r + 1] = 'granted'
    elseif step == 1 and lock and verb ~= 'renew' and (byte(lock) == 49
      or verb == 'acquire' and terms.retryWithinMs > 0 and sub(lock, 20, 35) > now) then
      answers[r + 1] = 'crowded'
    else
      left = left or {}
      left[#left + 1] = {r = r, k = k, holder = holder, terms = terms}
    end
    r = r + 1
  end
  at = last + 1
end

if left then
  -- Where memory has run out Redis still deletes. The next fencing token is then larger by the server's clock alone.
  local function free(key, lock)
    -- A run that is taken over counts as alive until now.
    local since = (tonumber(sub(lock, 67, 69)) or 0) > 0 and now .. ' ' .. never or nobody
    local done = pcall('SETRANGE', key, 19, since)
    if type(done) == 'table' then
      if sub(lock, 54, 69) ~= noTick or not find(done.err, 'OOM', 1, true) then error(done.err) end
      call('DEL', key)
    elseif byte(lock) == 49 then call('SETRANGE', key, 0, '0') end
  end

  local channel = ARGV[2]
  local function plain(number) return format('%.0f', number) end
  local function hasLine(lock) return byte(lock) == 49 end
  local function lastOf(lock) return sub(lock, 3, 18) end
  local function untilOf(lock) return sub(lock, 20, 35) end
  local function tokenOf(lock) return sub(lock, 37, 52) end
  local function tickOf(lock) return sub(lock, 54, 69) end
  local windowEnd = wide(nowUs + ${RESERVATION_MS} * 1000)
  -- One that is kept for somebody is so for no longer than that, also if the clock was set back.
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

  local function prolong(k, lock, terms)
    local memoryMs = terms.memoryMs
    if tickOf(lock) ~= noTick then memoryMs = math.max(call('PTTL', KEYS[k]), memoryMs) end
    write(k, sub(lock, 1, 18) .. terms.untilText .. sub(lock, 37), memoryMs)
  end

  -- WAIT asks for the last write of the connection: whoever hears that the lock is his has written it.
  local function touch(k, lock) pcall('SETRANGE', KEYS[k], 0, sub(lock, 1, 1)) end

  local function leave(k, holder)
    call('ZREM', KEYS[k + 1], holder)
    call('HDEL', KEYS[k + 2], holder)
  end

  local function stand(k, holder, terms)
    call('ZADD', KEYS[k + 1], 'NX', plain(nowUs), holder)
    call('HSET', KEYS[k + 2], holder, wide(nowUs + terms.retryWithinMs * 1000) .. channel)
    call('PEXPIRE', KEYS[k + 1], terms.retryWithinMs * 2)
    call('PEXPIRE', KEYS[k + 2], terms.retryWithinMs * 2)
  end

  -- Who stands first, and on which channel to call. Those who have not asked again in time are sent away.
  local function first(k)
    while true do
      local holder = call('ZRANGE', KEYS[k + 1], 0, 0)[1]
      if not holder then return end
      local place = call('HGET', KEYS[k + 2], holder)
      if place and sub(place, 1, 16) >= now then return holder, sub(place, 17) end
      leave(k, holder)
    end
  end

  -- The lock is free now. Keeps it for the first in line and calls him, and the next one in case he does not come.
  local function handOver(k, lock)
    local memory = ' ' .. lastOf(lock) .. ' '
    local tick = ' ' .. tickOf(lock) .. ' '
    local holder, itsChannel
    if hasLine(lock) then holder, itsChannel = first(k) end
    if not holder then return free(KEYS[k], lock) end
    leave(k, holder)
    local deputy, deputysChannel = first(k)
    write(k, (deputy and '1' or '0') .. memory .. windowEnd .. ' ' .. never .. tick .. holder .. ' ' .. now .. ' ')
    pcall('PUBLISH', itsChannel, '0 ' .. KEYS[k])
    if deputy then pcall('PUBLISH', deputysChannel, '${SECOND_WAITER_DELAY_MS} ' .. KEYS[k]) end
  end

  local function grant(k, lock, holder, terms, newTick)
    local token, last = now, terms.last
    if lock and lastOf(lock) >= now then
      token = wide(tonumber(lastOf(lock)) + 1)
      last = wide(tonumber(lastOf(lock)) + terms.tokenCount)
    end
    local mark = lock and hasLine(lock) and '1 ' or '0 '
    local tick = newTick or lock and tickOf(lock) or noTick
    local memoryMs = newTick and terms.rememberMs or tick == noTick and terms.memoryMs or ${TICK_MEMORY_MS}
    write(k, mark .. last .. terms.untilText .. token .. ' ' .. tick .. ' ' .. holder .. terms.bearer, memoryMs)
    return 'granted ' .. token
  end

  local verbs = {}

  function verbs.acquire(k, lock, holder, terms)
    if isTooLate then return 'late' end
    if isGrantedTo(lock, holder) then
      if remainingMs(lock) < terms.leaseMs then prolong(k, lock, terms) else touch(k, lock) end
      return 'granted ' .. tokenOf(lock)
    end
    if isOf(lock, holder) then return grant(k, lock, holder, terms) end
    local mayWait = terms.retryWithinMs > 0
    if isHeld(lock) then
      if mayWait then
        stand(k, holder, terms)
        if not hasLine(lock) then write(k, '1' .. sub(lock, 2)) end
      end
      return 'taken ' .. plain(math.ceil(remainingMs(lock))) .. (mayWait and ' inLine' or '')
    end
    local head = lock and hasLine(lock) and first(k)
    if head and head ~= holder then
      if mayWait then stand(k, holder, terms) end
      handOver(k, lock)
      return 'taken ${RESERVATION_MS}' .. (mayWait and ' inLine' or '')
    end
    if head then leave(k, holder) end
    return grant(k, lock, holder, terms)
  end

  -- Grants a tick, as judgeTick says it.
  function verbs.claim(k, lock, holder, terms)
    if isTooLate then return 'late' end
    if isGrantedTo(lock, holder) then return verbs.acquire(k, lock, holder, terms) .. ' ' .. sub(lock, 67, 69) end
    local aheadMs = terms.tickMs - nowUs / 1000
    local function refused(reason, more)
      return 'refused ' .. reason .. ' ' .. plain(aheadMs) .. ' ' .. (more and plain(more) or '')
    end
    local newest, attempt = lock and tonumber(sub(lock, 54, 66)), 0
    if newest then attempt = tonumber(sub(lock, 67, 69)) end
    local isFree, isUnfinished = not isHeld(lock), attempt > 0 and attempt < terms.maxAttempts
    local diedLately = newest and nowUs / 1000 - math.max(newest, tonumber(untilOf(lock)) / 1000) <= terms.staleAfterMs
    if isUnfinished and isFree and diedLately and (terms.isRegistration or terms.tickMs > newest) then
      return refused('unfinished', newest)
    end
    if terms.isRegistration then
      if newest then return refused('claimed') end
      local tick = format('%013.0f', math.floor(nowUs / 1000)) .. '000'
      local text = lock and sub(lock, 1, 53) or '0 ' .. never .. ' ' .. never .. ' ' .. never .. ' '
      write(k, text .. tick .. (lock and sub(lock, 70) or ' '), ${TICK_MEMORY_MS})
      return refused('registered')
    end
    if newest and terms.tickMs <= newest then
      if terms.tickMs < newest or not isUnfinished then return refused('claimed') end
      if not isFree then return refused('claimed', math.ceil(remainingMs(lock))) end
      if not diedLately then return refused('stale') end
    else
      if aheadMs > terms.maxEarlyMs then
        aheadMs = math.ceil(aheadMs)
        return refused('early')
      end
      if -aheadMs > terms.staleAfterMs then return refused('stale') end
      if not isFree then return 'taken ' .. plain(math.ceil(remainingMs(lock))) end
      attempt = 0
    end
    local mark = format('%03.0f', attempt + 1)
    return grant(k, lock, holder, terms, format('%013.0f', terms.tickMs) .. mark) .. ' ' .. mark
  end

  function verbs.renew(k, lock, holder, terms)
    if not isGrantedTo(lock, holder) then return 'lost' end
    local answer, isLonger = 'renewed', remainingMs(lock) >= terms.leaseMs
    if terms.moreTokens and not hasLine(lock) then
      local first = math.max(tonumber(lastOf(lock)) + 1, nowUs)
      lock = sub(lock, 1, 2) .. wide(first + terms.moreTokens - 1) .. sub(lock, 19)
      answer = 'renewed ' .. wide(first)
      if isLonger then write(k, lock) end
    elseif isLonger then touch(k, lock) end
    if not isLonger then prolong(k, lock, terms) end
    return answer
  end

  function verbs.release(k, lock, holder)
    if isOf(lock, holder) then
      handOver(k, lock)
      return tokenOf(lock) == never and 'gone' or 'released'
    end
    if lock and hasLine(lock) then leave(k, holder) end
    return 'gone'
  end

  -- The run of the tick has ended, so nobody takes it over; also after its lease, if nobody has done so yet.
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

  for _, one in ipairs(left) do
    answers[one.r + 1] = verbs[one.terms.verb](one.k, locks[one.r], one.holder, one.terms)
  end
end

return answers
`;
