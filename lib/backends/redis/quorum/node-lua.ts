import { TICK_MEMORY_MS } from '../lua.js';

/** Empty columns: of a time or token, and of a tick. */
export const NEVER = '0'.repeat(16);
export const NO_TICK = ' '.repeat(16);

/** Of those who can wait, for so long none but the first who does gets a key that was given back. */
const KEPT_MS = 30;

/** Whether a lock is neither held nor kept nor waited for, knows no tick, and no token as large as the ballot. */
const IS_FREE = `(not lock or sub(lock, 20, 86) == '${NEVER} ${NEVER} ${NEVER} ${NO_TICK}' and sub(lock, 3, 18) < ballot)`;

/** Whether a lock is held by the holder, who claimed no tick without marking it, and is waited for by nobody. */
const ENDS_AT_ONCE = `sub(lock, 105, 105 + #holder) == holder .. ' ' and sub(lock, 1, 2) == '0 '
  and sub(lock, 54, 69) == never and sub(lock, 37, 52) ~= never`;

/**
 * What one server of a quorum does, for any number of requests in one call and one step. It votes: the lock itself is
 * held by whoever holds it on a majority.
 *
 * - In: for each request one of KEYS, the lock. ARGV: one text with the earliest and the latest time of this server in µs
 *   at which the call is wanted, the ballot, the first ballot of the same question, whether the askers who hold a vote
 *   already want it raised to the ballot (1), and the channel for calls; then for each row of requests with the same terms
 *   the verb, how many they are, the terms, and their holders. The terms are one text, but for \`acquire\`: for how many
 *   ms, to be remembered for how many, to be asked for again within how many, and what stands in the lock before the end
 *   of the lease, between that and the holder, and behind him.
 * - In, where one lock is asked for alone: within how many ms again, for how many, to be remembered for how many, and what
 *   stands in the lock before the end of the lease and behind that. Where one is given back alone, and surely within its
 *   lease: the holder.
 * - Out: the server's time in µs (0: not looked at), then a text for each request. \`granted\` alone means, as does
 *   \`=\` behind it: with the ballot as the token.
 * - Numbers cross as text: Lua prints large ones with an exponent. Leases end by the server's own clock.
 *
 * A ballot is the fencing token that is asked for. The server grants it only if it is larger than every one that it
 * granted before; of two quorums with a server in common the later one thus has the larger token.
 *
 * A lock is a text of columns: \`1\` while somebody claims a tick and has not marked it, the newest token that is taken up,
 * until when it is held, the token of its holder, until when somebody waits, the newest claimed tick in ms with the number
 * of its attempt in three digits (000: a run of it has ended), until when its last run was surely on; then its holder,
 * his first ballot, who runs the newest tick (\`-\`: nobody), who waits first, and the holder's instance. Columns are of one width, so that
 * they can be compared as text, and times are in µs like tokens.
 *
 * Most calls are about locks that nobody else wants, so these are served first, with as little Lua as possible.
 */
export const NODE_LUA = `
local call, sub = redis.call, string.sub
local never, nobody, noTick = '${NEVER}', '${NEVER} ${NEVER}', '${NO_TICK}'
local args, key, about = ARGV, KEYS[1], ARGV[1]
local isAlone = #KEYS == 1
local lock = isAlone and call('GET', key)

if #args == 2 then
  local holder = args[2]
  if lock and ${ENDS_AT_ONCE} and type(redis.pcall('SETRANGE', key, 19, nobody)) == 'number' then
    return {0, 'released'}
  end
  args = {about, 'release', '1', '', holder}
end

local clock = call('TIME')
local nowUs = clock[1] * 1000000 + clock[2]
local now = clock[1] .. sub('00000' .. clock[2], -6)
local isTimely = now >= sub(about, 1, 16) and now <= sub(about, 18, 33)
local ballot = sub(about, 35, 50)

if #args == 6 and isAlone then
  local rest = args[6]
  if isTimely and ${IS_FREE} then
    call('PSETEX', key, args[4], args[5] .. string.format('%016.0f', nowUs + args[3] * 1000) .. rest)
    return {nowUs, 'granted'}
  end
  local holder = string.match(rest, '^%S+', 70)
  args = {about, 'acquire', '1', args[3], args[4], args[2], args[5], sub(rest, 1, 69), sub(rest, 70 + #holder), holder}
end

local pcall, find, byte, format, match = redis.pcall, string.find, string.byte, string.format, string.match
local function wide(number) return format('%016.0f', number) end
local since, raises, channel = sub(about, 52, 67), sub(about, 69, 69) == '1', sub(about, 71)
local locks = isAlone and {lock} or call('MGET', unpack(KEYS))

local answers, left = {nowUs}, nil
local r, at = 1, 2
while at < #args do
  local verb, first, last = args[at], at + 3, nil
  if verb == 'acquire' then
    first = at + 8
    last = first + args[at + 1] - 1
    local isFresh, memoryMs, bearer = isTimely and not raises, args[at + 3], args[at + 7]
    local grantee = args[at + 5] .. wide(nowUs + args[at + 2] * 1000) .. args[at + 6]
    for a = first, last do
      local lock, holder = locks[r], args[a]
      if isFresh and ${IS_FREE} and not pcall('PSETEX', KEYS[r], memoryMs, grantee .. holder .. bearer).err then
        answers[r + 1] = 'granted'
      else
        left = left or {}
        left[#left + 1] = {r = r, holder = holder, row = at}
      end
      r = r + 1
    end
  else
    last = first + args[at + 1] - 1
    local isRelease = verb == 'release'
    for a = first, last do
      local lock, holder = locks[r], args[a]
      if isRelease and lock and sub(lock, 20, 35) > now and ${ENDS_AT_ONCE}
        and type(pcall('SETRANGE', KEYS[r], 19, nobody)) == 'number' then
        answers[r + 1] = 'released'
      else
        left = left or {}
        left[#left + 1] = {r = r, holder = holder, row = at}
      end
      r = r + 1
    end
  end
  at = last + 1
end

if left then
  local function plain(number) return format('%.0f', number) end

  local known = {}
  local function termsOf(row)
    if known[row] then return known[row] end
    local verb = args[row]
    local terms = {verb = verb, rest = args[row + 2]}
    known[row] = terms
    if verb == 'acquire' then
      terms.leaseMs, terms.memoryMs = tonumber(args[row + 2]), tonumber(args[row + 3])
      terms.againWithinMs = tonumber(args[row + 4])
      terms.last, terms.instance = sub(args[row + 5], 3, 18), sub(args[row + 7], 23)
    elseif verb == 'claim' or verb == 'renew' or verb == 'rejoin' then
      local leaseMs, memoryMs, rest = match(terms.rest, '^(%d+) (%d+) ?(.*)$')
      terms.leaseMs, terms.memoryMs, terms.rest = tonumber(leaseMs), tonumber(memoryMs), rest
    end
    if verb == 'claim' then
      local tokenCount, tickMs, maxAttempts, isRegistration, instance =
        match(terms.rest, '^(%d+) (%d+) (%d+) (%d) (.*)$')
      terms.againWithinMs, terms.instance, terms.last = 0, instance, wide(ballot + tokenCount - 1)
      terms.tickMs, terms.maxAttempts = tonumber(tickMs), tonumber(maxAttempts)
      terms.isRegistration = isRegistration == '1'
    end
    if terms.leaseMs then terms.untilText = wide(nowUs + terms.leaseMs * 1000) end
    return terms
  end

  local function lastOf(lock) return sub(lock, 3, 18) end
  local function untilOf(lock) return sub(lock, 20, 35) end
  local function tokenOf(lock) return sub(lock, 37, 52) end
  local function waitingOf(lock) return sub(lock, 54, 69) end
  local function tickOf(lock) return sub(lock, 71, 86) end
  local function bearerOf(lock) return match(lock, '^(%S+) (%d+) (%S+) (%S+) (.*)$', 105) end
  local function runnerOf(lock)
    local _, _, runner = bearerOf(lock)
    return runner
  end
  -- With no token it is not held, but kept for who waits.
  local function isHeld(lock) return lock and untilOf(lock) > now and tokenOf(lock) ~= never end
  local function isGrantedTo(lock, holder)
    return isHeld(lock) and find(lock, holder, 105, true) == 105 and byte(lock, 105 + #holder) == 32
  end
  local function remainingMs(lock) return (tonumber(untilOf(lock)) - nowUs) / 1000 end
  local function larger(one, other) if one > other then return one else return other end end

  -- Until when the run of the newest tick was surely on: that of its lease, as long as nobody else held the key since.
  local function aliveOf(lock)
    local holder, _, runner = bearerOf(lock)
    if holder == runner and untilOf(lock) ~= never then return untilOf(lock) end
    return sub(lock, 88, 103)
  end

  local function write(key, lock, memoryMs)
    if tickOf(lock) ~= noTick then memoryMs = math.max(call('PTTL', key), memoryMs) end
    call('PSETEX', key, plain(memoryMs), lock)
  end

  local function prolong(key, lock, terms)
    write(key, sub(lock, 1, 19) .. terms.untilText .. sub(lock, 36), terms.memoryMs)
  end

  -- Only the first who waits is known by name: he is called when the lock is free, and the others look a little later.
  local function await(key, lock, waiter, againWithinMs)
    local holder, first, runner, present, instance = bearerOf(lock)
    if againWithinMs == 0 or waitingOf(lock) > now and present ~= waiter then return end
    local text = sub(lock, 1, 53) .. wide(nowUs + againWithinMs * 1000) .. sub(lock, 70, 104) .. holder .. ' ' .. first
    pcall('SET', key, text .. ' ' .. runner .. ' ' .. waiter .. ' ' .. instance, 'KEEPTTL')
  end

  -- Where memory has run out Redis still deletes. The next token is then larger by the clocks alone.
  local function free(key, lock, kept)
    local done = pcall('SETRANGE', key, 19, kept or nobody)
    if type(done) == 'table' then
      if tickOf(lock) ~= noTick or not find(done.err, 'OOM', 1, true) then error(done.err) end
      call('DEL', key)
    end
  end

  local function release(key, lock)
    if waitingOf(lock) <= now then
      free(key, lock)
      return 'released'
    end
    local _, _, _, waiter = bearerOf(lock)
    free(key, lock, wide(nowUs + ${KEPT_MS} * 1000) .. ' ' .. never)
    pcall('PUBLISH', channel, tokenOf(lock) .. ' ' .. waiter .. ' ' .. key)
    return 'released waiting'
  end

  local function grant(key, lock, holder, terms)
    local last, tick, alive, waiting, runner, waiter = terms.last, noTick, never, never, '-', '-'
    local question = since
    if lock then
      last, tick, alive = larger(lastOf(lock), last), tickOf(lock), aliveOf(lock)
      if tick ~= noTick then runner = runnerOf(lock) end
    end
    if lock and raises then
      local present, first, _, waits = bearerOf(lock)
      if waits ~= holder then waiting, waiter = waitingOf(lock), waits end
      if present == holder then question = larger(first, since) end
    end
    local flag = terms.verb == 'claim' and '1 ' or '0 '
    local text = flag .. last .. ' ' .. terms.untilText .. ' ' .. ballot .. ' ' .. waiting .. ' ' .. tick .. ' ' .. alive
    write(key, text .. ' ' .. holder .. ' ' .. question .. ' ' .. runner .. ' ' .. waiter .. ' ' .. terms.instance, terms.memoryMs)
    return '='
  end

  -- The vote that he has already; raised where he could not win with that. It belongs to his newest question from now on,
  -- so that an older one cannot take it back.
  local function keep(key, lock, holder, terms)
    if raises and ballot > tokenOf(lock) then return grant(key, lock, holder, terms) end
    local _, first, runner, waiter, instance = bearerOf(lock)
    local untilText = larger(untilOf(lock), terms.untilText)
    local text = sub(lock, 1, 19) .. untilText .. sub(lock, 36, 104) .. holder .. ' ' .. larger(first, since)
    write(key, text .. ' ' .. runner .. ' ' .. waiter .. ' ' .. instance, math.max(call('PTTL', key), terms.memoryMs))
    return tokenOf(lock)
  end

  local function taken(key, lock, asker, terms)
    local holder, first = bearerOf(lock)
    await(key, lock, asker, terms.againWithinMs)
    return 'taken ' .. plain(math.ceil(remainingMs(lock))) .. ' ' .. holder .. ' ' .. first .. ' ' .. lastOf(lock)
      .. ' ' .. sub(lock, 1, 1)
  end

  local verbs = {}

  function verbs.acquire(key, lock, holder, terms)
    if not isTimely then return 'untimely' end
    if isGrantedTo(lock, holder) then return 'granted ' .. keep(key, lock, holder, terms) end
    if isHeld(lock) then return taken(key, lock, holder, terms) end
    if lock and untilOf(lock) > now and terms.againWithinMs > 0 then
      local _, _, _, waiter = bearerOf(lock)
      if waiter ~= holder then return 'taken ' .. plain(math.ceil(remainingMs(lock))) .. ' ' .. waiter .. ' 0 ' .. lastOf(lock) .. ' 0' end
    end
    if lock and lastOf(lock) >= ballot then return 'behind ' .. lastOf(lock) end
    grant(key, lock, holder, terms)
    return 'granted'
  end

  -- Votes for who would claim a tick, and tells what is known of the ticks; who is surely too late gets no vote.
  function verbs.claim(key, lock, holder, terms)
    if not isTimely then return 'untimely' end
    local newest, attempt, seen = nil, 0, ' - - -'
    if lock and tickOf(lock) ~= noTick then
      newest, attempt = tonumber(sub(lock, 71, 83)), tonumber(sub(lock, 84, 86))
      seen = ' ' .. tickOf(lock) .. ' ' .. aliveOf(lock) .. ' ' .. runnerOf(lock)
    end
    if isGrantedTo(lock, holder) then return 'granted ' .. keep(key, lock, holder, terms) .. seen end
    if newest and (terms.isRegistration or terms.tickMs < newest
      or terms.tickMs == newest and (attempt == 0 or attempt >= terms.maxAttempts)) then
      return 'seen ' .. (isHeld(lock) and plain(math.ceil(remainingMs(lock))) or '0') .. seen
    end
    if isHeld(lock) then return taken(key, lock, holder, terms) .. seen end
    if lock and lastOf(lock) >= ballot then return 'behind ' .. lastOf(lock) .. seen end
    return 'granted ' .. grant(key, lock, holder, terms) .. seen
  end

  -- Marks a tick as claimed by who holds the lock: for a run, or just as registered, which frees the lock again.
  function verbs.mark(key, lock, holder, terms)
    if not isTimely then return 'untimely' end
    if not isGrantedTo(lock, holder) then return 'lost' end
    local tick, memoryMs, isRegistration = match(terms.rest, '^(%d+) (%d+) (%d)$')
    local _, first, _, waiter, instance = bearerOf(lock)
    local held, runner = sub(lock, 20, 52), holder
    if isRegistration == '1' then held, runner = nobody, '-' end
    local text = '0 ' .. lastOf(lock) .. ' ' .. held .. ' ' .. waitingOf(lock) .. ' ' .. tick .. ' ' .. never
    write(key, text .. ' ' .. holder .. ' ' .. first .. ' ' .. runner .. ' ' .. waiter .. ' ' .. instance, tonumber(memoryMs))
    return 'marked'
  end

  function verbs.renew(key, lock, holder, terms)
    if not isGrantedTo(lock, holder) then return 'lost' end
    if remainingMs(lock) < terms.leaseMs then prolong(key, lock, terms) end
    return 'renewed'
  end

  function verbs.release(key, lock, holder)
    if isGrantedTo(lock, holder) then return release(key, lock) end
    if lock and waitingOf(lock) > now then
      local _, _, _, waiter = bearerOf(lock)
      if waiter == holder then call('SETRANGE', key, 53, never) end
    end
    return 'gone'
  end

  -- Takes back the vote of a question that led to nothing, unless it was given anew for a larger ballot.
  function verbs.yield(key, lock, holder, terms)
    local question, largest, againWithinMs = match(terms.rest, '^(%d+) (%d+) (%d+)$')
    local isHis = isGrantedTo(lock, holder)
    if isHis then
      local _, first = bearerOf(lock)
      isHis = first == question and tokenOf(lock) <= largest
    end
    if isHis then
      free(key, lock)
      lock = sub(lock, 1, 19) .. nobody .. sub(lock, 53)
    end
    if lock then await(key, lock, holder, tonumber(againWithinMs)) end
    return isHis and 'released' or 'gone'
  end

  -- The run of the newest tick has ended, so nobody takes it over; also after its lease, if nobody has done so yet.
  function verbs.finish(key, lock, holder)
    local isHis, isRunner = isGrantedTo(lock, holder), lock and runnerOf(lock) == holder
    if isRunner then
      local present, first, _, waiter, instance = bearerOf(lock)
      lock = sub(lock, 1, 83) .. '000' .. sub(lock, 87, 104) .. present .. ' ' .. first .. ' - ' .. waiter .. ' ' .. instance
      call('SET', key, lock, 'KEEPTTL')
    end
    local told = isHis and release(key, lock) or 'released'
    if isRunner then return 'noted' .. sub(told, 9) end
    return isHis and told or 'gone'
  end

  function verbs.forceRelease(key, lock, token)
    if not isHeld(lock) then return 'gone' end
    local wanted = tonumber(token)
    if wanted < tonumber(tokenOf(lock)) or wanted > tonumber(lastOf(lock)) then return 'gone' end
    return release(key, lock)
  end

  -- Who claims a tick and may not get it holds nothing yet.
  function verbs.inspect(key, lock)
    if not isHeld(lock) or byte(lock) == 49 then return 'free' end
    local holder, first, _, _, instance = bearerOf(lock)
    return 'held ' .. plain(math.ceil(remainingMs(lock))) .. ' ' .. holder .. ' ' .. tokenOf(lock) .. ' ' .. first .. ' ' .. instance
  end

  function verbs.copy(key, lock, holder)
    return isGrantedTo(lock, holder) and lock or 'lost'
  end

  -- A server that lost its vote takes it over from one that has it. No token that was granted since can be larger. What it
  -- knows of ticks by itself it keeps, unless the other knows of a newer run.
  function verbs.rejoin(key, lock, holder, terms)
    if not isTimely then return 'untimely' end
    if isHeld(lock) then return 'taken' end
    local text = terms.rest
    local last = lock and larger(lastOf(lock), lastOf(text)) or lastOf(text)
    local tick, alive = sub(text, 71, 86), sub(text, 88, 103)
    local holder, first, runner, waiter, instance = bearerOf(text)
    if lock and tickOf(lock) ~= noTick then
      local ours, theirs = sub(lock, 71, 83), sub(tick, 1, 13)
      local isOurs = tick == noTick or ours > theirs
      if ours == theirs then isOurs = sub(lock, 84, 86) == '000' or sub(tick, 14) ~= '000' and sub(lock, 84, 86) > sub(tick, 14) end
      if isOurs then tick, alive, runner = tickOf(lock), aliveOf(lock), runnerOf(lock) end
    end
    local memoryMs = tick == noTick and terms.memoryMs or ${TICK_MEMORY_MS}
    local text = '0 ' .. last .. ' ' .. terms.untilText .. sub(text, 36, 70) .. tick .. ' ' .. alive .. ' '
    write(key, text .. holder .. ' ' .. first .. ' ' .. runner .. ' ' .. waiter .. ' ' .. instance, memoryMs)
    return 'rejoined'
  end

  for _, one in ipairs(left) do
    local terms = termsOf(one.row)
    answers[one.r + 1] = verbs[terms.verb](KEYS[one.r], locks[one.r], one.holder, terms)
  end
end

return answers
`;
