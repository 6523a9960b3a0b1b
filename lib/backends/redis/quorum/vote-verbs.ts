import { TICK_MEMORY_MS } from '../single/stored-lock.js';
import { LOCKS } from './vote-locks.js';

/** What a server answers to an acquisition, to a claim of a tick, and to the mark that follows a claim. */
const ACQUISITIONS = `
  local verbs = {}

  -- After the clock was set back, tokens may be ahead of it. Only a larger ballot can follow them, however far ahead it is.
  local function isWanted(lock)
    return isTimely or lock and header < lock.last and now <= sub(header, 18, 33)
  end

  function verbs.acquire(key, lock, holder, params)
    if not isWanted(lock) then return 'untimely' end
    if isGrantedTo(lock, holder) then return 'granted ' .. keepVote(key, lock, holder, params) end
    if isHeld(lock) then return taken(key, lock, params) end
    if lock and lock.last >= ballot then return 'behind ' .. lock.last end
    grant(key, lock, holder, params)
    return 'granted'
  end

  local function newestTick(lock)
    if not lock or lock.tick == noTick then return ' - - - ' .. (lock and lock.pause or '-') end
    return ' ' .. lock.tick .. ' ' .. aliveOf(lock) .. ' ' .. lock.runner .. ' ' .. lock.pause
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
    if isHeld(lock) then return taken(key, lock, params) .. seen end
    if lock and lock.last >= ballot then return 'behind ' .. lock.last .. seen end
    return 'granted ' .. grant(key, lock, holder, params) .. seen
  end

  -- Marks a tick as claimed by the holder of the lock: for a run. Attempt 0 is a registration, which also releases the lock.
  function verbs.mark(key, lock, holder, params)
    if not isWanted(lock) then return 'untimely' end
    if not isGrantedTo(lock, holder) then return 'lost' end
    local tick, memoryMs, pause = match(params.rest, '^(%d+) (%d+) (%S+)$')
    -- The claim has not seen this pause, or its end.
    if sub(lock.pause, 2) > sub(pause, 2) then return 'lost' end
    if sub(pause, 2) > sub(lock.pause, 2) then lock.pause = pause end -- A resumption that this server has missed.
    lock.tick, lock.alive, lock.mark, lock.runner = tick, never, '0', holder
    if sub(tick, 14) == '000' then
      lock.token, lock.from, lock.lease, lock.mark, lock.runner = never, never, never, '-', '-'
    end
    write(key, lock, tonumber(memoryMs))
    return 'marked'
  end
`;

/** What a server does for a lock that it holds: renew, release, show and copy. */
const HELD_LOCKS = `
  function verbs.renew(key, lock, holder, params)
    if not isGrantedTo(lock, holder) then return 'lost' end
    local longerMs = (nowUs + params.lease - untilUs(lock)) / 1000
    if longerMs > 0 then
      lock.from, lock.lease = now, params.lease
      -- If the run dies, it may be retried for some time after its lease.
      write(key, lock, params.memoryMs, lock.tick ~= noTick and longerMs)
    end
    return 'renewed'
  end

  function verbs.release(key, lock, holder)
    return isGrantedTo(lock, holder) and release(key, lock) or 'gone'
  end

  -- Releases the vote of a failed acquisition, unless the holder got it again for a larger ballot.
  function verbs.yield(key, lock, holder, params)
    local askedFirst, largest, retryWithinMs = match(params.rest, '^(%d+) (%d+) (%d+)$')
    local isHolder = isGrantedTo(lock, holder) and lock.firstBallot == askedFirst and lock.token <= largest
    if isHolder then free(key, lock) end
    if lock then recordWaiter(key, lock, tonumber(retryWithinMs)) end
    return isHolder and 'released' or 'gone'
  end

  -- The run of the newest tick has ended and must not be taken over. This also works after its lease, unless another run
  -- has taken over already.
  function verbs.finish(key, lock, holder)
    local isHolder, isRunner = isGrantedTo(lock, holder), lock and lock.runner == holder
    if isRunner then
      lock.tick, lock.runner = sub(lock.tick, 1, 13) .. '000', '-'
      allowWrites(key)
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

  -- In: the pause or its end with its version, whether its end keeps the tick, and the time now as a tick, the same on all
  -- servers. Of several pauses, the largest version counts. A pause registers the key, and its end the time, as registerTicks
  -- does.
  function verbs.pause(key, lock, _, params)
    if not isTimely then return 'untimely' end
    local pause, keepsTick, nowTick = match(params.rest, '^(%S+) (%S+) (%S+)$')
    lock = lock or read(table.concat({never, noTick, never, never, never, never, '-', never, '-', never, '-', '-', ''}, ' '))
    if sub(pause, 2) <= sub(lock.pause, 2) then return 'outdated' end
    lock.pause = pause
    if isPaused(lock) and lock.tick == noTick or not isPaused(lock) and keepsTick == '0' then
      if lock.tick == noTick or lock.tick < nowTick then lock.tick = nowTick end
      lock.tick, lock.alive, lock.runner = sub(lock.tick, 1, 13) .. '000', never, '-'
    end
    write(key, lock, ${TICK_MEMORY_MS})
    return 'written'
  end

  -- In: the least time to remember the copy. Out: how long this server remembers the lock, because the key of a tick that may
  -- overlap with others expires soon, and the lock.
  function verbs.copy(key, lock, holder, params)
    if not isGrantedTo(lock, holder) then return 'lost' end
    return plain(math.max(call('PTTL', key), tonumber(params.rest))) .. ' ' .. textOf(lock)
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
    if lock and sub(lock.pause, 2) > sub(new.pause, 2) then new.pause = lock.pause end
    new.mark, new.from, new.lease = '0', now, params.lease
    write(key, new, params.memoryMs)
    return 'rejoined'
  end
`;

/** What the vote script does for each verb. In: the lock (nil: none), its holder, and the parameters. Out: the reply. */
export const VERBS = `${LOCKS}${ACQUISITIONS}${HELD_LOCKS}`;
