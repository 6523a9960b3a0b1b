import { TICK_MEMORY_MS } from './stored-lock.js';

/** The part of the lock script for the ticks of a job: read, registered, paused and resumed, without a lock. */
export const TICK_VERBS = `
  -- In: nothing more.
  -- Out: the time, the rest of the lease in ms, until when the last run was alive, and the newest tick with its attempt.
  -- One step, so that time and lock belong together.
  function verbs.readTicks(k, lock)
    local heldForMs = isHeld(lock) and plain(math.ceil(remainingMs(lock))) or '0'
    return table.concat({now, heldForMs, lock and untilOf(lock) or never, lock and tickOf(lock) or noTick}, ' ')
  end

  local function nowTick() return format('%013.0f', math.floor(nowUs / 1000)) end

  local function writeTick(k, lock, tick)
    local text = lock and sub(lock, 1, 53) or '0 ' .. never .. ' ' .. never .. ' ' .. never .. ' '
    write(k, text .. tick .. (lock and sub(lock, 70) or ' '), ${TICK_MEMORY_MS})
  end

  -- In: nothing more. Remembers now as the newest tick if there is none, so that a tick before it counts as claimed.
  -- Out: what readTicks replies, about the lock as it was.
  -- One step, so that a tick that is claimed meanwhile stays.
  function verbs.registerTicks(k, lock)
    if not lock or tickOf(lock) == noTick then writeTick(k, lock, nowTick() .. '000') else touch(k, lock) end
    return verbs.readTicks(k, lock)
  end

  -- In: instead of the holder, the latest time at which it may take effect. From now on, claims are refused as paused.
  -- Out: \`paused\`; \`late\`.
  -- One step, so that the end of a run and a claim come before or after it.
  function verbs.pause(k, lock, latest)
    if now > latest then return 'late' end
    if not lock or tickOf(lock) == noTick then writeTick(k, lock, nowTick() .. '500')
    elseif not isPaused(lock) then writeTick(k, lock, sub(lock, 54, 66) .. '5' .. sub(lock, 68, 69))
    else touch(k, lock) end
    return 'paused'
  end

  -- In: as for a pause. Ends it, as resumedTick in core/tick.ts says.
  -- Out: \`resumed\`; \`late\`.
  -- One step, as above.
  function verbs.resume(k, lock, latest)
    if now > latest then return 'late' end
    if not lock or not isPaused(lock) then
      if lock then touch(k, lock) end
      return 'resumed'
    end
    local tick, attempt = sub(lock, 54, 66), '0' .. sub(lock, 68, 69)
    if not isHeld(lock) then
      attempt = '000'
      if tick < nowTick() then tick = nowTick() end
    end
    writeTick(k, lock, tick .. attempt)
    return 'resumed'
  end
`;
