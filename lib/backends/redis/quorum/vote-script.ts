import { TICK_MEMORY_MS } from '../single/lock-script.js';

/** Empty columns: of a time or token, and of a tick. */
export const NEVER = '0'.repeat(16);
export const NO_TICK = ' '.repeat(16);
/** The latest time of all: 16 digits. */
export const FOREVER = '9'.padEnd(16, '0');

/** Of those who can wait, for so long none but the first who does gets a key that was given back. */
const RESERVATION_MS = 30;

/** Of what is not held: token, since when, for how long; and the mark of that. */
const NOT_HELD = `${NEVER} ${NEVER} ${NEVER} -`;
/** What stands in a lock of which nothing is to be known but its last token. */
const IDLE = `${NO_TICK} ${NEVER} ${NOT_HELD} ${NEVER} `;

/**
 * What one server of a quorum does, for any number of requests in one call and one step. It votes: the lock itself is
 * held by whoever holds it on a majority.
 *
 * - In: for each request one of KEYS, the lock. ARGV: one text with the earliest and the latest time of this server in µs
 *   at which the call is wanted, the ballot, the first ballot of the same question, whether the askers who hold a vote
 *   already want it raised to the ballot (1), and the channel for calls; then for each row of requests with the same terms
 *   the verb, how many they are, the terms, and their holders. The terms are one text, but for \`acquire\`: for how many
 *   ms to be remembered, within how many to be asked for again, and what stands in the lock before the time of the grant,
 *   between that and the holder, and behind him.
 * - In, where one lock is asked for alone: for how many ms to be remembered, within how many to be asked for again, and
 *   what stands before and behind the time of the grant. Where one is given back alone, and surely within its lease:
 *   instead of the times and ballots the channel by itself, and what stands in the lock from its mark to its holder.
 * - Out: the server's time in µs, then a text for each request. \`granted\` alone means, as does \`=\` behind it: with the
 *   ballot as the token. Where one lock was asked for alone and is granted, the time by itself; where one was given back
 *   alone and nobody waits, only \`released\`: a list costs as much as two commands.
 * - Numbers cross as text: Lua prints large ones with an exponent. Leases end by the server's own clock.
 *
 * A ballot is the fencing token that is asked for. The server grants it only if it is larger than every one that it
 * granted before; of two quorums with a server in common the later one thus has the larger token.
 *
 * A lock is a text of columns: the newest token that is taken up; the newest claimed tick in ms with the number of its
 * attempt in three digits (000: a run of it has ended), and until when its last run was surely on; the token of its
 * holder, since when and for how long he holds it, and a mark: \`-\` while nobody does (with a time: kept for who waits),
 * \`1\` while somebody claims a tick and has not marked it, else \`0\`; until when somebody waits; then the holder, his
 * first ballot, who runs the newest tick (\`-\`: nobody), who waits first, and the holder's instance. Times are in µs like
 * tokens, and both are of one width, so that they can be compared as text.
 *
 * Most calls are about locks that nobody else wants, so these are served first, with as little Lua as possible: each text
 * that it makes costs a server as much as a look at a key. All others are read into tables.
 */
export const VOTE_SCRIPT = `
local call, pcall, sub, find = redis.call, redis.pcall, string.sub, string.find
local args, key, about = ARGV, KEYS[1], ARGV[1]
local nobody, idle = '${NOT_HELD}', '${IDLE}'
local isAlone = #KEYS == 1
local text = isAlone and call('GET', key)

if #args == 2 then
  local ending = args[2]
  if text and find(text, '${NO_TICK}', 18, true) == 18 and find(text, ending, 103, true) == 103 and type(pcall('SETRANGE', key, 51, nobody)) == 'number' then
    return 'released'
  end
  about = '${NEVER} ${FOREVER} ${NEVER} ${NEVER} 0 ' .. about
  args = {about, 'release', '1', '', sub(ending, 20, -2)}
end

local clock = call('TIME')
local micros = tostring(clock[2])
if #micros < 6 then micros = sub('00000' .. micros, -6) end
local now = clock[1] .. micros
local isTimely = about < now and now <= sub(about, 18, 33)
local ballot = sub(about, 35, 50)

-- Where a row has its verb, this has a number.
if #args == 5 and isAlone and string.byte(args[2]) < 58 then
  local bearer = args[5]
  if isTimely and (not text or text < ballot and find(text, idle, 18, true) == 18) then
    call('PSETEX', key, args[2], args[4] .. now .. bearer)
    return now
  end
  local holder = string.match(bearer, '^%S+', 38)
  local between, behind = sub(bearer, 1, 37), sub(bearer, 38 + #holder)
  args = {about, 'acquire', '1', args[2], args[3], args[4], between, behind, holder}
end

local since, raises, channel = sub(about, 52, 67), sub(about, 69, 69) == '1', sub(about, 71)
local texts = isAlone and {text} or call('MGET', unpack(KEYS))

local answers, left = {now}, nil
local r, at = 1, 2
while at < #args do
  local verb, first = args[at], at + 3
  if verb == 'acquire' then first = at + 7 end
  local last = first + args[at + 1] - 1
  local isFresh, isSure = verb == 'acquire' and isTimely and not raises, verb == 'release' and args[at + 2] == 'sure'
  local memoryMs, grantee, behind = args[at + 2], nil, nil
  if isFresh then grantee, behind = args[at + 4] .. now .. args[at + 5], args[at + 6] end
  for a = first, last do
    local text, holder = texts[r], args[a]
    if isFresh and (not text or text < ballot and find(text, idle, 18, true) == 18)
      and not pcall('PSETEX', KEYS[r], memoryMs, grantee .. holder .. behind).err then
      answers[r + 1] = 'granted'
    elseif isSure and text and find(text, '${NO_TICK}', 18, true) == 18 and find(text, '0 ${NEVER} ' .. holder .. ' ', 103, true) == 103
      and type(pcall('SETRANGE', KEYS[r], 51, nobody)) == 'number' then
      answers[r + 1] = 'released'
    else
      left = left or {}
      left[#left + 1] = {r = r, holder = holder, row = at}
    end
    r = r + 1
  end
  at = last + 1
end

if left then
  local format, match = string.format, string.match
  local nowUs, never, noTick = tonumber(now), '${NEVER}', '${NO_TICK}'
  local function wide(number) return format('%016.0f', number) end
  local function plain(number) return format('%.0f', number) end
  local function larger(one, other) if one > other then return one else return other end end

  local known = {}
  local function termsOf(row)
    if known[row] then return known[row] end
    local verb = args[row]
    local terms = {verb = verb, rest = args[row + 2]}
    known[row] = terms
    if verb == 'acquire' then
      terms.memoryMs, terms.retryWithinMs = tonumber(args[row + 2]), tonumber(args[row + 3])
      terms.last, terms.lease, terms.instance = sub(args[row + 4], 1, 16), sub(args[row + 5], 2, 17), sub(args[row + 6], 23)
    elseif verb == 'claim' or verb == 'renew' or verb == 'rejoin' then
      local leaseMs, memoryMs, rest = match(terms.rest, '^(%d+) (%d+) ?(.*)$')
      terms.lease, terms.memoryMs, terms.rest = wide(leaseMs * 1000), tonumber(memoryMs), rest
    end
    if verb == 'claim' then
      local tokenCount, tickMs, maxAttempts, isRegistration, instance =
        match(terms.rest, '^(%d+) (%d+) (%d+) (%d) (.*)$')
      terms.retryWithinMs, terms.instance, terms.last = 0, instance, wide(ballot + tokenCount - 1)
      terms.tickMs, terms.maxAttempts = tonumber(tickMs), tonumber(maxAttempts)
      terms.isRegistration = isRegistration == '1'
    end
    return terms
  end

  local function read(text)
    local lock = {}
    lock.last, lock.tick, lock.alive, lock.token, lock.from, lock.lease, lock.mark, lock.waiting,
      lock.holder, lock.first, lock.runner, lock.waiter, lock.instance =
      match(text, '^(%d+) (${'.'.repeat(16)}) (%d+) (%d+) (%d+) (%d+) (.) (%d+) (%S+) (%d+) (%S+) (%S+) (.*)$')
    return lock
  end
  local function textOf(lock)
    return table.concat({lock.last, lock.tick, lock.alive, lock.token, lock.from, lock.lease, lock.mark, lock.waiting,
      lock.holder, lock.first, lock.runner, lock.waiter, lock.instance}, ' ')
  end

  local function untilUs(lock) return lock.from + lock.lease end
  local function isHeld(lock) return lock and lock.mark ~= '-' and untilUs(lock) > nowUs end
  local function isGrantedTo(lock, holder) return isHeld(lock) and lock.holder == holder end
  local function remainingMs(lock) return plain(math.ceil((untilUs(lock) - nowUs) / 1000)) end

  -- Until when the run of the newest tick was surely on: that of its lease, as long as nobody else held the key since.
  local function aliveOf(lock)
    if lock.mark ~= '-' and lock.holder == lock.runner then return wide(untilUs(lock)) end
    return lock.alive
  end

  -- Tokens from before the clock was set back are remembered until it has caught up with them. Without that, the next one
  -- could be smaller.
  local function write(key, lock, memoryMs)
    local aheadMs = math.max(math.ceil((lock.last - nowUs) / 1000), 0)
    call('PSETEX', key, plain(math.max(call('PTTL', key), memoryMs + aheadMs)), textOf(lock))
  end

  -- Only the first who waits is known by name: he is called when the lock is free, and the others look a little later.
  local function await(key, lock, waiter, retryWithinMs)
    if retryWithinMs == 0 or lock.waiting > now and lock.waiter ~= waiter then return end
    lock.waiting, lock.waiter = wide(nowUs + retryWithinMs * 1000), waiter
    pcall('SET', key, textOf(lock), 'KEEPTTL')
  end

  -- Where memory has run out Redis still deletes. The next token is then larger by the clocks alone.
  local function free(key, lock, kept)
    local done = pcall('SETRANGE', key, 51, kept or nobody)
    if type(done) == 'table' then
      if lock.tick ~= noTick or not find(done.err, 'OOM', 1, true) then error(done.err) end
      call('DEL', key)
    end
  end

  local function release(key, lock)
    -- A run that is taken over counts as alive until now.
    if lock.holder == lock.runner then call('SETRANGE', key, 34, now) end
    if lock.waiting <= now then
      free(key, lock)
      return 'released'
    end
    free(key, lock, never .. ' ' .. now .. ' ' .. wide(${RESERVATION_MS} * 1000) .. ' -')
    pcall('PUBLISH', channel, lock.token .. ' ' .. lock.waiter .. ' ' .. key)
    return 'released waiting'
  end

  local function grant(key, lock, holder, terms)
    local new = {
      last = terms.last, tick = noTick, alive = never, token = ballot, from = now, lease = terms.lease, mark = '0',
      waiting = never, holder = holder, first = since, runner = '-', waiter = '-', instance = terms.instance,
    }
    if terms.verb == 'claim' then new.mark = '1' end
    if lock then
      new.last = larger(lock.last, new.last)
      if lock.tick ~= noTick then new.tick, new.alive, new.runner = lock.tick, aliveOf(lock), lock.runner end
    end
    if lock and raises then
      if lock.waiter ~= holder then new.waiting, new.waiter = lock.waiting, lock.waiter end
      if lock.holder == holder then new.first = larger(lock.first, since) end
    end
    write(key, new, terms.memoryMs)
    return '='
  end

  -- The vote that he has already; raised where he could not win with that. It belongs to his newest question from now on,
  -- so that an older one cannot take it back.
  local function keep(key, lock, holder, terms)
    if raises and ballot > lock.token then return grant(key, lock, holder, terms) end
    if nowUs + terms.lease > untilUs(lock) then lock.from, lock.lease = now, terms.lease end
    lock.first = larger(lock.first, since)
    write(key, lock, terms.memoryMs)
    return lock.token
  end

  local function taken(key, lock, asker, terms)
    await(key, lock, asker, terms.retryWithinMs)
    return table.concat({'taken', remainingMs(lock), lock.holder, lock.first, lock.last, lock.mark}, ' ')
  end

  -- A token from before the clock was set back: only larger ones can follow it, however far ahead they are.
  local function isWanted(lock)
    return isTimely or lock and about < lock.last and now <= sub(about, 18, 33)
  end

  local verbs = {}

  function verbs.acquire(key, lock, holder, terms)
    if not isWanted(lock) then return 'untimely' end
    if isGrantedTo(lock, holder) then return 'granted ' .. keep(key, lock, holder, terms) end
    if isHeld(lock) then return taken(key, lock, holder, terms) end
    local isKept = lock and untilUs(lock) > nowUs and lock.waiter ~= holder
    if isKept and terms.retryWithinMs > 0 then
      return 'taken ' .. remainingMs(lock) .. ' ' .. lock.waiter .. ' 0 ' .. lock.last .. ' 0'
    end
    if lock and lock.last >= ballot then return 'behind ' .. lock.last end
    grant(key, lock, holder, terms)
    return 'granted'
  end

  -- Votes for who would claim a tick, and tells what is known of the ticks; who is surely too late gets no vote.
  function verbs.claim(key, lock, holder, terms)
    if not isWanted(lock) then return 'untimely' end
    local newest, attempt, seen = nil, 0, ' - - -'
    if lock and lock.tick ~= noTick then
      newest, attempt = tonumber(sub(lock.tick, 1, 13)), tonumber(sub(lock.tick, 14))
      seen = ' ' .. lock.tick .. ' ' .. aliveOf(lock) .. ' ' .. lock.runner
    end
    if isGrantedTo(lock, holder) then return 'granted ' .. keep(key, lock, holder, terms) .. seen end
    if newest and (terms.isRegistration or terms.tickMs < newest
      or terms.tickMs == newest and (attempt == 0 or attempt >= terms.maxAttempts)) then
      return 'seen ' .. (isHeld(lock) and remainingMs(lock) or '0') .. seen
    end
    if isHeld(lock) then return taken(key, lock, holder, terms) .. seen end
    if lock and lock.last >= ballot then return 'behind ' .. lock.last .. seen end
    return 'granted ' .. grant(key, lock, holder, terms) .. seen
  end

  -- Marks a tick as claimed by who holds the lock: for a run, or just as registered, which frees the lock again.
  function verbs.mark(key, lock, holder, terms)
    if not isWanted(lock) then return 'untimely' end
    if not isGrantedTo(lock, holder) then return 'lost' end
    local tick, memoryMs, isRegistration = match(terms.rest, '^(%d+) (%d+) (%d)$')
    lock.tick, lock.alive, lock.mark, lock.runner = tick, never, '0', holder
    if isRegistration == '1' then
      lock.token, lock.from, lock.lease, lock.mark, lock.runner = never, never, never, '-', '-'
    end
    write(key, lock, tonumber(memoryMs))
    return 'marked'
  end

  function verbs.renew(key, lock, holder, terms)
    if not isGrantedTo(lock, holder) then return 'lost' end
    if untilUs(lock) < nowUs + terms.lease then
      lock.from, lock.lease = now, terms.lease
      write(key, lock, terms.memoryMs)
    end
    return 'renewed'
  end

  function verbs.release(key, lock, holder)
    if isGrantedTo(lock, holder) then return release(key, lock) end
    if lock and lock.waiting > now and lock.waiter == holder then call('SETRANGE', key, 104, never) end
    return 'gone'
  end

  -- Takes back the vote of a question that led to nothing, unless it was given anew for a larger ballot.
  function verbs.yield(key, lock, holder, terms)
    local question, largest, retryWithinMs = match(terms.rest, '^(%d+) (%d+) (%d+)$')
    local isHis = isGrantedTo(lock, holder) and lock.first == question and lock.token <= largest
    if isHis then
      free(key, lock)
      lock.token, lock.from, lock.lease, lock.mark = never, never, never, '-'
    end
    if lock then await(key, lock, holder, tonumber(retryWithinMs)) end
    return isHis and 'released' or 'gone'
  end

  -- The run of the newest tick has ended, so nobody takes it over; also after its lease, if nobody has done so yet.
  function verbs.finish(key, lock, holder)
    local isHis, isRunner = isGrantedTo(lock, holder), lock and lock.runner == holder
    if isRunner then
      lock.tick, lock.runner = sub(lock.tick, 1, 13) .. '000', '-'
      call('SET', key, textOf(lock), 'KEEPTTL')
    end
    local told = isHis and release(key, lock) or 'released'
    if isRunner then return 'noted' .. sub(told, 9) end
    return isHis and told or 'gone'
  end

  function verbs.forceRelease(key, lock, token)
    if not isHeld(lock) then return 'gone' end
    local wanted = tonumber(token)
    if wanted < tonumber(lock.token) or wanted > tonumber(lock.last) then return 'gone' end
    return release(key, lock)
  end

  -- Who claims a tick and may not get it holds nothing yet.
  function verbs.inspect(key, lock)
    if not isHeld(lock) or lock.mark == '1' then return 'free' end
    return table.concat({'held', remainingMs(lock), lock.holder, lock.token, lock.first, lock.instance}, ' ')
  end

  function verbs.copy(key, lock, holder)
    return isGrantedTo(lock, holder) and textOf(lock) or 'lost'
  end

  -- A server that lost its vote takes it over from one that has it. No token that was granted since can be larger. What it
  -- knows of ticks by itself it keeps, unless the other knows of a newer run.
  function verbs.rejoin(key, lock, holder, terms)
    if not isTimely then return 'untimely' end
    if isHeld(lock) then return 'taken' end
    local new = read(terms.rest)
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
    new.mark, new.from, new.lease = '0', now, terms.lease
    write(key, new, new.tick == noTick and terms.memoryMs or ${TICK_MEMORY_MS})
    return 'rejoined'
  end

  for _, one in ipairs(left) do
    local terms, text = termsOf(one.row), texts[one.r]
    answers[one.r + 1] = verbs[terms.verb](KEYS[one.r], text and read(text), one.holder, terms)
  end
end

return answers
`;
