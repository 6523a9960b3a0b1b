import { withTimeout } from '../../../core/requests/with-timeout.js';
import { systemClock } from '../../../core/clock.js';
import { nextTurn } from '../../../core/real-time.js';

const SLOT_COUNT = 16_384;
/** After the newest answer of a node. Long enough for a redirection, and shorter than anybody's patience. */
const SLOW_NODE_TIMEOUT_MS = 250;
/** Also where answers come in one by one. */
const LONGEST_MS = 1_000;

/** CRC16 of the XMODEM kind, as the Redis Cluster specification has it. */
function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc;
}

/** In which slot of a Cluster a key lies: what stands between its first pair of braces decides, if anything does. */
export function slotOf(key: string): number {
  const from = key.indexOf('{') + 1;
  const to = from === 0 ? -1 : key.indexOf('}', from);
  return crc16(Buffer.from(to > from ? key.slice(from, to) : key)) % SLOT_COUNT;
}

/**
 * Lets the members of each slot be asked about together, and gives the answers in the order of the members. A node that
 * is silent holds the answers of the others up for a moment only; its own ones are then what `unheard` says.
 */
export async function runPerSlot<Member extends object, Result>(
  members: readonly Member[],
  slotOfMember: (member: Member) => number,
  run: (group: readonly Member[], slot: number) => Promise<readonly Result[]>,
  timeoutResult: (afterMs: number) => Result,
): Promise<readonly Result[]> {
  const groups = new Map<number, Member[]>();
  for (const member of members) {
    const slot = slotOfMember(member);
    const group = groups.get(slot);
    if (group) group.push(member);
    else groups.set(slot, [member]);
  }
  const results = new Map<Member, Result | undefined>();
  const pending = [...groups].map(async ([slot, group]) => {
    const received = await run(group, slot);
    group.forEach((member, index) => results.set(member, received[index]));
  });
  if (pending.length > 0) await Promise.race(pending);
  const all = Promise.all(pending);
  const latestMs = systemClock.monotonicMs() + LONGEST_MS;
  for (let received = -1; received < results.size && systemClock.monotonicMs() < latestMs;) {
    received = results.size;
    // Where this process was kept from everything meanwhile, answers may have come that it has not read.
    if (!(await withTimeout(systemClock, SLOW_NODE_TIMEOUT_MS, all))) await nextTurn();
  }
  return members.map((member) => results.get(member) ?? timeoutResult(SLOW_NODE_TIMEOUT_MS));
}
