import { TICK_MEMORY_MS } from '../single/lock-script.js';

/** Empty columns: a time or token, and a tick. */
export const NEVER = '0'.repeat(16);
export const NO_TICK = ' '.repeat(16);
/** A time in µs that never comes, in 16 digits. */
export const FOREVER = '9'.padEnd(16, '0');

/** After a release with waiters, how long the key is reserved for the first of them. */
const RESERVATION_MS = 30;

/** The columns of a lock that is not held: token, since, lease, mark. */
const NOT_HELD = `${NEVER} ${NEVER} ${NEVER} -`;
/** The columns after the newest token, in a lock that is free and has neither a tick nor waiters. */
const IDLE = `${NO_TICK} ${NEVER} ${NOT_HELD} ${NEVER} `;

/**
 * What one server of a quorum does, for any number of requests in one call and one atomic step. A server only votes: a lock
 * is held when a majority of the servers has voted for the same holder and token.
 *
 * - In: KEYS has one lock for each request. ARGV[1] is the header: the earliest and the latest time of this server in µs at
 *   which the call may take effect, the ballot, the ballot of the first round, whether votes that the acquisition already
 *   has are raised to the ballot (1), and the channel for notifications. Then for each row of requests with the same
 *   parameters: the verb, the number of requests, the parameters, and the holders. The parameters are one text, but for
 *   `acquire` five: how many ms to remember the lock, within how many ms a refused waiter retries (0: it does not wait),
 *   and the columns of the lock before the time of the grant, between that time and the holder, and after the holder.
 * - In, for a single `acquire`: after the header how many ms to remember the lock, within how many ms it is retried, and the
 *   columns before and after the time of the grant. For a single `release` that is certain to arrive within the lease: the
 *   channel without the rest of the header, and the columns of the lock from the mark to the holder.
 * - Out: the server's time in µs, then a reply for each request. `granted` alone means: with the ballot as token, as does `=`
 *   after it. A single `acquire` that is granted returns only the time, and a single `release` without waiters only
 *   `released`: returning a list costs as much as two commands.
 * - Numbers are passed as text, because Lua prints large ones with an exponent. Leases end by the server's own clock.
 *
 * A ballot is the fencing token that is asked for. The server votes for it only if it is larger than every token that it has
 * granted. Two majorities have a server in common, so the later grant has the larger token.
 *
 * A lock is a text of columns:
 *
 * 1. the newest token that is in use;
 * 2. the newest claimed tick in ms, then its attempt in three digits (000: a run of it has ended);
 * 3. until when the last run of that tick was certainly alive;
 * 4. to 6. the token of the holder, since when it holds the lock, and for how long;
 * 7. a mark: `-` not held (with a time: reserved for the first waiter), `1` a tick claim that has not marked its tick yet,
 *    `0` held otherwise;
 * 8. until when the first waiter counts;
 * 9. to 13. the holder, its first ballot, the runner of the newest tick (`-`: none), the first waiter, and the holder's
 *    instance.
 *
 * Times are in µs like tokens, and both have the same width, so that they can be compared as text.
 *
 * Most requests are for locks without contention. They are served first with as little Lua as possible, because each text
 * that Lua makes costs about as much as reading a key. All other requests take the slow path, which parses locks into tables.
 */
export const VOTE_SCRIPT = `
local call, pcall, sub, find = redis.call, redis.pcall, string.sub, string.find
local args, key, header = ARGV, KEYS[1], ARGV[1]
local notHeld, idle = '${NOT_HELD}', '${IDLE}'
local isAlone = #KEYS == 1
local text = isAlone and call('GET', key)

if #args == 2 then
  local ending = args[2]
  if text and find(text, '${NO_TICK}', 18, true) == 18 and find(text, ending, 103, true) == 103 and type(pcall('SETRANGE', key, 51, notHeld)) == 'number' then
    return 'released'
  end
  header = '${NEVER} ${FOREVER} ${NEVER} ${NEVER} 0 ' .. header
  args = {header, 'release', '1', '', sub(ending, 20, -2)}
end

local clock = call('TIME')
local micros = tostring(clock[2])
if #micros < 6 then micros = sub('00000' .. micros, -6) end
local now = clock[1] .. micros
local isTimely = header < now and now <= sub(header, 18, 33)
local ballot = sub(header, 35, 50)

-- The short form of a single acquire: args[2] is a number, not a verb.
if #args == 5 and isAlone and string.byte(args[2]) < 58 then
  local afterTime = args[5]
  if isTimely and (not text or text < ballot and find(text, idle, 18, true) == 18) then
    call('PSETEX', key, args[2], args[4] .. now .. afterTime)
    return now
  end
  local holder = string.match(afterTime, '^%S+', 38)
  local between, afterHolder = sub(afterTime, 1, 37), sub(afterTime, 38 + #holder)
  args = {header, 'acquire', '1', args[2], args[3], args[4], between, afterHolder, holder}
end

local firstBallot, isRaised, channel = sub(header, 52, 67), sub(header, 69, 69) == '1', sub(header, 71)
local texts = isAlone and {text} or call('MGET', unpack(KEYS))

local replies, slowPath = {now}, nil
local r, at = 1, 2
while at < #args do
  local verb, first = args[at], at + 3
  if verb == 'acquire' then first = at + 7 end
  local last = first + args[at + 1] - 1
  local isFresh, isSure = verb == 'acquire' and isTimely and not isRaised, verb == 'release' and args[at + 2] == 'sure'
  local memoryMs, beforeHolder, afterHolder = args[at + 2], nil, nil
  if isFresh then beforeHolder, afterHolder = args[at + 4] .. now .. args[at + 5], args[at + 6] end
  for a = first, last do
    local text, holder = texts[r], args[a]
    if isFresh and (not text or text < ballot and find(text, idle, 18, true) == 18)
      and not pcall('PSETEX', KEYS[r], memoryMs, beforeHolder .. holder .. afterHolder).err then
      replies[r + 1] = 'granted'
    elseif isSure and text and find(text, '${NO_TICK}', 18, true) == 18 and find(text, '0 ${NEVER} ' .. holder .. ' ', 103, true) == 103
      and type(pcall('SETRANGE', KEYS[r], 51, notHeld)) == 'number' then
      replies[r + 1] = 'released'
    else
      slowPath = slowPath or {}
      slowPath[#slowPath + 1] = {r = r, holder = holder, row = at}
    end
    r = r + 1
  end
  at = last + 1
end

if slowPath then
  local format, match = string.format, string.match
  local nowUs, never, noTick = tonumber(now), '${NEVER}', '${NO_TICK}'
  local function wide(number) return format('%016.0f', number) end
  local function plain(number) return format('%.0f', number) end
  local function larger(one, other) if one > other then return one else return other end end

  local known = {}
  local function paramsOf(row)
    if known[row] then return known[row] end
    local verb = args[row]
    local params = {verb = verb, rest = args[row + 2]}
    known[row] = params
    if verb == 'acquire' then
      params.memoryMs, params.retryWithinMs = tonumber(args[row + 2]), tonumber(args[row + 3])
      params.last, params.lease, params.instance = sub(args[row + 4], 1, 16), sub(args[row + 5], 2, 17), sub(args[row + 6], 23)
    elseif verb == 'claim' or verb == 'renew' or verb == 'rejoin' then
      local leaseMs, memoryMs, rest = match(params.rest, '^(%d+) (%d+) ?(.*)$')
      params.lease, params.memoryMs, params.rest = wide(leaseMs * 1000), tonumber(memoryMs), rest
    end
    if verb == 'claim' then
      local tokenCount, tickMs, maxAttempts, instance = match(params.rest, '^(%d+) (%d+) (%d+) (.*)$')
      params.retryWithinMs, params.instance, params.last = 0, instance, wide(ballot + tokenCount - 1)
      params.tickMs, params.maxAttempts = tonumber(tickMs), tonumber(maxAttempts)
    end
    return params
  end

  local function read(text)
    local lock = {}
    lock.last, lock.tick, lock.alive, lock.token, lock.from, lock.lease, lock.mark, lock.waiting,
      lock.holder, lock.firstBallot, lock.runner, lock.waiter, lock.instance =
      match(text, '^(%d+) (${'.'.repeat(16)}) (%d+) (%d+) (%d+) (%d+) (.) (%d+) (%S+) (%d+) (%S+) (%S+) (.*)$')
    return lock
  end
  local function textOf(lock)
    return table.concat({lock.last, lock.tick, lock.alive, lock.token, lock.from, lock.lease, lock.mark, lock.waiting,
      lock.holder, lock.firstBallot, lock.runner, lock.waiter, lock.instance}, ' ')
  end

  local function untilUs(lock) return lock.from + lock.lease end
  local function isHeld(lock) return lock and lock.mark ~= '-' and untilUs(lock) > nowUs end
  local function isGrantedTo(lock, holder) return isHeld(lock) and lock.holder == holder end
  local function remainingMs(lock) return plain(math.ceil((untilUs(lock) - nowUs) / 1000)) end

  -- Until when the run of the newest tick was certainly alive. If no other holder had the key since, that is its lease.
  local function aliveOf(lock)
    if lock.mark ~= '-' and lock.holder == lock.runner then return wide(untilUs(lock)) end
    return lock.alive
  end

  -- Tokens from before the clock was set back are remembered until the clock has caught up with them. Otherwise the next
  -- token could be smaller.
  local function write(key, lock, memoryMs)
    local aheadMs = math.max(math.ceil((lock.last - nowUs) / 1000), 0)
    call('PSETEX', key, plain(math.max(call('PTTL', key), memoryMs + aheadMs)), textOf(lock))
  end

  -- Only the first waiter is recorded. It is notified when the lock is free; the others retry a little later.
  local function recordWaiter(key, lock, waiter, retryWithinMs)
    if retryWithinMs == 0 or lock.waiting > now and lock.waiter ~= waiter then return end
    lock.waiting, lock.waiter = wide(nowUs + retryWithinMs * 1000), waiter
    pcall('SET', key, textOf(lock), 'KEEPTTL')
  end

  -- When memory has run out, Redis still deletes keys. Only the clocks then make the next token larger.
  local function free(key, lock, kept)
    local done = pcall('SETRANGE', key, 51, kept or notHeld)
    if type(done) == 'table' then
      if lock.tick ~= noTick or not find(done.err, 'OOM', 1, true) then error(done.err) end
      call('DEL', key)
    end
  end

  local function release(key, lock)
    -- If the run is taken over, it counts as alive until now.
    if lock.holder == lock.runner then call('SETRANGE', key, 34, now) end
    if lock.waiting <= now then
      free(key, lock)
      return 'released'
    end
    free(key, lock, never .. ' ' .. now .. ' ' .. wide(${RESERVATION_MS} * 1000) .. ' -')
    pcall('PUBLISH', channel, lock.token .. ' ' .. lock.waiter .. ' ' .. key)
    return 'released waiting'
  end

  local function grant(key, lock, holder, params)
    local new = {
      last = params.last, tick = noTick, alive = never, token = ballot, from = now, lease = params.lease, mark = '0',
      waiting = never, holder = holder, firstBallot = firstBallot, runner = '-', waiter = '-', instance = params.instance,
    }
    if params.verb == 'claim' then new.mark = '1' end
    if lock then
      new.last = larger(lock.last, new.last)
      if lock.tick ~= noTick then new.tick, new.alive, new.runner = lock.tick, aliveOf(lock), lock.runner end
    end
    if lock and isRaised then
      if lock.waiter ~= holder then new.waiting, new.waiter = lock.waiting, lock.waiter end
      if lock.holder == holder then new.firstBallot = larger(lock.firstBallot, firstBallot) end
    end
    write(key, new, params.memoryMs)
    return '='
  end

  -- The holder already has this vote. It is raised if the old token could not win. From now on it belongs to the holder's
  -- newest acquisition, so that a late yield of an older one does not release it.
  local function keepVote(key, lock, holder, params)
    if isRaised and ballot > lock.token then return grant(key, lock, holder, params) end
    if nowUs + params.lease > untilUs(lock) then lock.from, lock.lease = now, params.lease end
    lock.firstBallot = larger(lock.firstBallot, firstBallot)
    write(key, lock, params.memoryMs)
    return lock.token
  end

  local function taken(key, lock, holder, params)
    recordWaiter(key, lock, holder, params.retryWithinMs)
    return table.concat({'taken', remainingMs(lock), lock.holder, lock.firstBallot, lock.last, lock.mark}, ' ')
  end

  -- After the clock was set back, tokens may be ahead of it. Only a larger ballot can follow them, however far ahead it is.
  local function isWanted(lock)
    return isTimely or lock and header < lock.last and now <= sub(header, 18, 33)
  end

  local verbs = {}

  function verbs.acquire(key, lock, holder, params)
    if not isWanted(lock) then return 'untimely' end
    if isGrantedTo(lock, holder) then return 'granted ' .. keepVote(key, lock, holder, params) end
    if isHeld(lock) then return taken(key, lock, holder, params) end
    local isReserved = lock and untilUs(lock) > nowUs and lock.waiter ~= holder
    if isReserved and params.retryWithinMs > 0 then
      return 'taken ' .. remainingMs(lock) .. ' ' .. lock.waiter .. ' 0 ' .. lock.last .. ' 0'
    end
    if lock and lock.last >= ballot then return 'behind ' .. lock.last end
    grant(key, lock, holder, params)
    return 'granted'
  end

  local function newestTick(lock)
    if not lock or lock.tick == noTick then return ' - - -' end
    return ' ' .. lock.tick .. ' ' .. aliveOf(lock) .. ' ' .. lock.runner
  end

  -- A tick claim that is not marked yet may still fail, so it does not count as a run.
  function verbs.readTicks(key, lock)
    return 'seen ' .. (isHeld(lock) and lock.mark ~= '1' and remainingMs(lock) or '0') .. newestTick(lock)
  end

  -- Votes for a claim of a tick and reports the newest known tick. A claim that is certainly too late gets no vote.
  function verbs.claim(key, lock, holder, params)
    if not isWanted(lock) then return 'untimely' end
    local newest, attempt, seen = nil, 0, newestTick(lock)
    if lock and lock.tick ~= noTick then
      newest, attempt = tonumber(sub(lock.tick, 1, 13)), tonumber(sub(lock.tick, 14))
    end
    if isGrantedTo(lock, holder) then return 'granted ' .. keepVote(key, lock, holder, params) .. seen end
    if newest and (params.tickMs < newest or params.tickMs == newest and (attempt == 0 or attempt >= params.maxAttempts)) then
      return 'seen ' .. (isHeld(lock) and remainingMs(lock) or '0') .. seen
    end
    if isHeld(lock) then return taken(key, lock, holder, params) .. seen end
    if lock and lock.last >= ballot then return 'behind ' .. lock.last .. seen end
    return 'granted ' .. grant(key, lock, holder, params) .. seen
  end

  -- Marks a tick as claimed by the holder of the lock. Attempt 0 is no run but a registration, which also releases the lock.
  function verbs.mark(key, lock, holder, params)
    if not isWanted(lock) then return 'untimely' end
    if not isGrantedTo(lock, holder) then return 'lost' end
    local tick, memoryMs = match(params.rest, '^(%d+) (%d+)$')
    lock.tick, lock.alive, lock.mark, lock.runner = tick, never, '0', holder
    if sub(tick, 14) == '000' then
      lock.token, lock.from, lock.lease, lock.mark, lock.runner = never, never, never, '-', '-'
    end
    write(key, lock, tonumber(memoryMs))
    return 'marked'
  end

  function verbs.renew(key, lock, holder, params)
    if not isGrantedTo(lock, holder) then return 'lost' end
    if untilUs(lock) < nowUs + params.lease then
      lock.from, lock.lease = now, params.lease
      write(key, lock, params.memoryMs)
    end
    return 'renewed'
  end

  function verbs.release(key, lock, holder)
    if isGrantedTo(lock, holder) then return release(key, lock) end
    if lock and lock.waiting > now and lock.waiter == holder then call('SETRANGE', key, 104, never) end
    return 'gone'
  end

  -- Releases the vote of a failed acquisition, unless the holder got it again for a larger ballot.
  function verbs.yield(key, lock, holder, params)
    local askedFirst, largest, retryWithinMs = match(params.rest, '^(%d+) (%d+) (%d+)$')
    local isHolder = isGrantedTo(lock, holder) and lock.firstBallot == askedFirst and lock.token <= largest
    if isHolder then
      free(key, lock)
      lock.token, lock.from, lock.lease, lock.mark = never, never, never, '-'
    end
    if lock then recordWaiter(key, lock, holder, tonumber(retryWithinMs)) end
    return isHolder and 'released' or 'gone'
  end

  -- The run of the newest tick has ended and must not be taken over. This also works after its lease, unless another run
  -- has taken over already.
  function verbs.finish(key, lock, holder)
    local isHolder, isRunner = isGrantedTo(lock, holder), lock and lock.runner == holder
    if isRunner then
      lock.tick, lock.runner = sub(lock.tick, 1, 13) .. '000', '-'
      call('SET', key, textOf(lock), 'KEEPTTL')
    end
    local result = isHolder and release(key, lock) or 'released'
    if isRunner then return 'noted' .. sub(result, 9) end
    return isHolder and result or 'gone'
  end

  function verbs.forceRelease(key, lock, token)
    if not isHeld(lock) then return 'gone' end
    local wanted = tonumber(token)
    if wanted < tonumber(lock.token) or wanted > tonumber(lock.last) then return 'gone' end
    return release(key, lock)
  end

  -- A tick claim that is not marked yet may still fail, so it does not count as a holder.
  function verbs.inspect(key, lock)
    if not isHeld(lock) or lock.mark == '1' then return 'free' end
    return table.concat({'held', remainingMs(lock), lock.holder, lock.token, lock.firstBallot, lock.instance}, ' ')
  end

  function verbs.copy(key, lock, holder)
    return isGrantedTo(lock, holder) and textOf(lock) or 'lost'
  end

  -- Repair: writes the vote that another server has. No larger token can have been granted since. This server keeps the tick
  -- that it knows, unless the other server knows a newer run.
  function verbs.rejoin(key, lock, holder, params)
    if not isTimely then return 'untimely' end
    if isHeld(lock) then return 'taken' end
    local new = read(params.rest)
    if lock then new.last = larger(lock.last, new.last) end
    if lock and lock.tick ~= noTick then
      local ours, theirs = sub(lock.tick, 1, 13), sub(new.tick, 1, 13)
      local isOurs = new.tick == noTick or ours > theirs
      if ours == theirs then
        local attempt, other = sub(lock.tick, 14), sub(new.tick, 14)
        isOurs = attempt == '000' or other ~= '000' and attempt > other
      end
      if isOurs then new.tick, new.alive, new.runner = lock.tick, aliveOf(lock), lock.runner end
    end
    new.mark, new.from, new.lease = '0', now, params.lease
    write(key, new, new.tick == noTick and params.memoryMs or ${TICK_MEMORY_MS})
    return 'rejoined'
  end

  for _, one in ipairs(slowPath) do
    local params, text = paramsOf(one.row), texts[one.r]
    replies[one.r + 1] = verbs[params.verb](KEYS[one.r], text and read(text), one.holder, params)
  end
end

return replies
`;
