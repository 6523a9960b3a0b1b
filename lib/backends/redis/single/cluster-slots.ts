import { systemClock } from '../../../core/clock.js';
import { StoreTimeoutError, withTimeout } from '../../../core/requests/store-timeout.js';
import { type UnknownResult, unknownResult } from '../../../core/unknown-result.js';

const SLOT_COUNT = 16_384;

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

/** How the members of each slot are run, and for how long at most. */
interface SlotCalls<Member, Result> {
  readonly slotOfMember: (member: Member) => number;
  readonly run: (group: readonly Member[], slot: number) => Promise<readonly Result[]>;
  readonly timeoutMs: number;
  /** Receives each result as soon as its slot has replied, so that a silent node does not delay those of others. */
  readonly onResult?: ((result: Result, index: number) => void) | undefined;
}

/**
 * Runs the members of each slot as one group. Returns the results in the order of the members, once all slots have replied or
 * the time is over. A member without a result by then gets an unknown one.
 */
export async function runPerSlot<Member, Result>(
  members: readonly Member[],
  { slotOfMember, run, timeoutMs, onResult }: SlotCalls<Member, Result>,
): Promise<readonly (Result | UnknownResult)[]> {
  const groups = new Map<number, [member: Member, index: number][]>();
  for (const [index, member] of members.entries()) {
    const slot = slotOfMember(member);
    const group = groups.get(slot);
    if (group) group.push([member, index]);
    else groups.set(slot, [[member, index]]);
  }
  const results = new Map<number, Result>();
  const pending = [...groups].map(async ([slot, group]) => {
    const membersOfSlot = group.map(([member]) => member);
    const received = await run(membersOfSlot, slot);
    for (const [at, [, index]] of group.entries()) {
      const result = received[at];
      if (result === undefined) continue;
      results.set(index, result);
      onResult?.(result, index);
    }
  });
  await withTimeout(systemClock, timeoutMs, Promise.all(pending));
  return members.map((_, index) => results.get(index) ?? unknownResult(new StoreTimeoutError(timeoutMs)));
}
