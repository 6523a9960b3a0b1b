/** Locks as tables, and how they are written. */
export const LOCKS = `
  local function read(text)
    local lock = {}
    lock.last, lock.tick, lock.alive, lock.token, lock.from, lock.lease, lock.mark, lock.waiting,
      lock.holder, lock.firstBallot, lock.runner, lock.pause, lock.instance =
      match(text, '^(%d+) (${'.'.repeat(16)}) (%d+) (%d+) (%d+) (%d+) (.) (%d+) (%S+) (%d+) (%S+) (%S+) (.*)$')
    return lock
  end
  local function textOf(lock)
    return table.concat({lock.last, lock.tick, lock.alive, lock.token, lock.from, lock.lease, lock.mark, lock.waiting,
      lock.holder, lock.firstBallot, lock.runner, lock.pause, lock.instance}, ' ')
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

  local function isPaused(lock) return sub(lock.pause, 1, 1) == 'P' end

  -- Tokens from before the clock was set back are remembered until the clock has caught up with them. Otherwise the next
  -- token could be smaller. A pause has no time limit.
  local function write(key, lock, memoryMs, longerMs)
    if isPaused(lock) then return call('SET', key, textOf(lock)) end
    local aheadMs = math.max(math.ceil((lock.last - nowUs) / 1000), 0)
    call('PSETEX', key, plain(math.max(call('PTTL', key) + (longerMs or 0), memoryMs + aheadMs)), textOf(lock))
  end

  local function recordWaiter(key, lock, retryWithinMs)
    local waiting = wide(nowUs + retryWithinMs * 1000)
    if retryWithinMs == 0 or lock.waiting >= waiting then return end
    lock.waiting = waiting
    pcall('SETRANGE', key, 104, waiting)
  end

  -- When memory has run out, Redis refuses to change a text, unless the script has written before. So this writes what is there.
  local function allowWrites(key)
    local memoryMs = call('PTTL', key)
    if memoryMs >= 0 then return call('PEXPIRE', key, math.max(memoryMs, 1)) end
    local text = call('GET', key)
    call('DEL', key)
    call('SET', key, text)
  end

  -- When memory has run out, Redis still deletes keys. Only the clocks then make the next token larger.
  local function free(key, lock)
    if lock.tick ~= noTick then allowWrites(key) end
    local done = pcall('SETRANGE', key, 51, notHeld)
    if type(done) == 'table' then
      if lock.tick ~= noTick or not find(done.err, 'OOM', 1, true) then error(done.err) end
      call('DEL', key)
    end
  end

  local function release(key, lock)
    free(key, lock)
    -- If the run is taken over, it counts as alive until now.
    if lock.holder == lock.runner then call('SETRANGE', key, 34, now) end
    if lock.waiting <= now then return 'released' end
    pcall('PUBLISH', channel, lock.token .. ' ' .. key)
    return 'released waiting'
  end

  local function grant(key, lock, holder, params)
    local new = {
      last = params.last, tick = noTick, alive = never, token = ballot, from = now, lease = params.lease, mark = '0',
      waiting = never, holder = holder, firstBallot = firstBallot, runner = '-', pause = lock and lock.pause or '-',
      instance = params.instance,
    }
    if params.verb == 'claim' then new.mark = '1' end
    if lock then
      new.last, new.waiting = larger(lock.last, new.last), lock.waiting
      if lock.tick ~= noTick then new.tick, new.alive, new.runner = lock.tick, aliveOf(lock), lock.runner end
      if isRaised and lock.holder == holder then new.firstBallot = larger(lock.firstBallot, firstBallot) end
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

  local function taken(key, lock, params)
    recordWaiter(key, lock, params.retryWithinMs)
    return table.concat({'taken', remainingMs(lock), lock.holder, lock.firstBallot, lock.last, lock.mark}, ' ')
  end
`;
