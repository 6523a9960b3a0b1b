import { systemClock } from '../../../core/clock.js';
import { withTimeout } from '../../../core/requests/store-timeout.js';

const SLOT_COUNT = 16_384;
/** How long to wait after the newest reply: long enough for a redirection, and shorter than the timeout of a caller. */
const SLOW_NODE_TIMEOUT_MS = 250;
/** How long to wait after the first reply, even if further replies keep arriving. */
const MAX_WAIT_MS = 1_000;

/** CRC16 in the XMODEM variant, as the Redis Cluster specification defines it. */
function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc;
}

/** The Cluster slot of a key: of its hash tag, the part between the first `{` and the next `}`, or else of the whole key. */
export function slotOf(key: string): number {
  const from = key.indexOf('{') + 1;
  const to = from === 0 ? -1 : key.indexOf('}', from);
  return crc16(Buffer.from(to > from ? key.slice(from, to) : key)) % SLOT_COUNT;
}

/**
 * Runs the members of each slot as one group, and returns the results in the order of the members. A silent node delays the
 * results of the others by `SLOW_NODE_TIMEOUT_MS`, nodes that reply one by one by about `MAX_WAIT_MS`. Members without a result
 * get `timeoutResult`.
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
  const latestMs = systemClock.monotonicMs() + MAX_WAIT_MS;
  for (let received = -1; received < results.size && systemClock.monotonicMs() < latestMs;) {
    received = results.size;
    await withTimeout(systemClock, SLOW_NODE_TIMEOUT_MS, all);
  }
  return members.map((member) => results.get(member) ?? timeoutResult(SLOW_NODE_TIMEOUT_MS));
}
