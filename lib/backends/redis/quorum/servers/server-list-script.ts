import { CHANNEL_PREFIX } from '../../notifications.js';
import { scriptOf } from '../../script-runner.js';

export const SERVER_LIST_KEY = `${CHANNEL_PREFIX}quorum:servers`;

/**
 * Records on one server which servers form its quorum, itself included: at most as many as the list has. If a process has
 * another list, the servers that do not fit are refused.
 *
 * - In: KEYS[1], a sorted set of names of servers with the time in ms until which each counts, and a member such as `#5` for
 *   the length of the list. ARGV: for how many ms the servers count, the length of the list, and for each server its name,
 *   followed by its names in the earlier runs whose data it kept.
 * - Out: the length of another list whose servers still count (or 0), then the names that are refused.
 * - One step, so that only one of two lists that arrive at the same time is accepted.
 */
export const SERVER_LIST_SCRIPT = scriptOf(`
local call, key = redis.call, KEYS[1]
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local latest, length = now + ARGV[1], '#' .. ARGV[2]
local other, counted, count = '0', {}, 0
local rows = call('ZRANGE', key, 0, -1, 'WITHSCORES')
for i = 1, #rows, 2 do
  local member, untilMs = rows[i], tonumber(rows[i + 1])
  if untilMs <= now then
    call('ZREM', key, member)
  else
    -- The clock was set back.
    if untilMs > latest then call('ZADD', key, latest, member) end
    if string.sub(member, 1, 1) ~= '#' then
      counted[member], count = true, count + 1
    elseif member ~= length then
      other = string.sub(member, 2)
    end
  end
end
local reply = {other}
for i = 3, #ARGV do
  local server
  for name in string.gmatch(ARGV[i], '%S+') do
    if not server then
      server = name
    elseif other == '0' and counted[name] then
      call('ZREM', key, name)
      counted[name], count = nil, count - 1
    end
  end
  if other == '0' and (counted[server] or count < tonumber(ARGV[2])) then
    if not counted[server] then counted[server], count = true, count + 1 end
    call('ZADD', key, latest, server, latest, length)
    call('PEXPIRE', key, ARGV[1])
  else
    reply[#reply + 1] = server
  end
end
return reply
`);
