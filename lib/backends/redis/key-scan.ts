import type { ListRequest, ListedLock, LockPage } from '../../core/lock-record.js';
import { systemClock } from '../../core/clock.js';
import { wrongCursorError } from '../../core/list-options.js';

/** A server that finds its keys step by step. */
export interface ScanClient {
  scan(
    cursor: string,
    match: 'MATCH',
    pattern: string,
    count: 'COUNT',
    countHint: number,
  ): Promise<[cursor: string, keys: string[]]>;
}

/** What is scanned: one server, the nodes of a Cluster, or servers of a quorum. */
export interface ScanTarget {
  /** The names of the servers to scan, one after the other. */
  readonly serverNames: () => readonly string[];
  /** @throws Error if the server is gone */
  readonly clientOf: (serverName: string) => ScanClient;
  /** The pattern of the Redis keys for locks whose keys start with the prefix, and the key of such a Redis key. */
  readonly patternOf: (prefix: string) => string;
  readonly keyOf: (redisKey: string) => string;
  /** Returns those of the keys that are held, without those that will be found on a server that is scanned later. */
  readonly readHeld: (
    keys: readonly string[],
    scannedLater: readonly string[],
  ) => Promise<readonly ListedLock[]>;
}

/** Where the next page begins. */
interface Position {
  readonly serverNames: readonly string[];
  /** Which of them is scanned next. */
  readonly index: number;
  /** The cursor of SCAN. */
  readonly scanCursor: string;
  /** Keys that were found already, but are not on a page yet. */
  readonly foundKeys: readonly string[];
}

/** How many keys a step of SCAN looks at. Too many would block the server, too few would need many steps. */
const MIN_STEP = 10;
const MAX_STEP = 500;
const SCAN_START = '0';
/** How much of the timeout a page may take. After that it ends early, so that it arrives in time. */
const TIME_PER_PAGE = 0.25;

/**
 * Lists held locks by SCAN, which does not block the server. A key may be on two pages if Redis rehashes its table
 * meanwhile, or if a server of a quorum gets its vote meanwhile.
 *
 * @see https://redis.io/docs/latest/commands/scan/
 */
export async function listByScan(
  { prefix, cursor, limit }: ListRequest,
  target: ScanTarget,
  timeoutMs: number,
): Promise<LockPage> {
  const endsAtMs = systemClock.monotonicMs() + timeoutMs * TIME_PER_PAGE;
  const pattern = target.patternOf(prefix);
  const locks = new Map<string, ListedLock>();
  let position = cursor === undefined ? startOf(target.serverNames()) : decode(cursor, prefix);
  let stepSize = limit;
  while (!isAtEnd(position) && locks.size < limit && systemClock.monotonicMs() <= endsAtMs) {
    const { keys, scannedLater, next } = await takeStep(target, position, { pattern, stepSize });
    const held = keys.length === 0 ? [] : await target.readHeld(keys, scannedLater);
    const added = held.slice(0, limit - locks.size);
    for (const lock of added) locks.set(lock.key, lock);
    position = { ...next, foundKeys: held.slice(added.length).map(({ key }) => key) };
    stepSize = held.length === 0 ? stepSize * 2 : limit - locks.size;
  }
  return { locks: [...locks.values()], ...(!isAtEnd(position) && { cursor: encode(position) }) };
}

/** A text in a pattern of SCAN, in which every character stands for itself. */
export const escapePattern = (text: string) => text.replace(/[\\*?[\]]/g, '\\$&');

interface Step {
  readonly keys: readonly string[];
  /** Servers on which the same keys may still be found. */
  readonly scannedLater: readonly string[];
  readonly next: Position;
}

/** Returns the keys that were found but are not on a page yet, or scans a few more. */
async function takeStep(
  target: ScanTarget,
  position: Position,
  { pattern, stepSize }: { readonly pattern: string; readonly stepSize: number },
): Promise<Step> {
  const { serverNames, index, scanCursor, foundKeys } = position;
  if (foundKeys.length > 0) return { keys: foundKeys, scannedLater: [], next: position };
  const client = target.clientOf(serverNames[index] ?? '');
  const count = Math.min(Math.max(stepSize, MIN_STEP), MAX_STEP);
  const [nextCursor, redisKeys] = await client.scan(scanCursor, 'MATCH', pattern, 'COUNT', count);
  const isServerDone = nextCursor === SCAN_START;
  return {
    keys: [...new Set(redisKeys)].map((redisKey) => target.keyOf(redisKey)),
    scannedLater: serverNames.slice(index + 1),
    next: { ...position, scanCursor: nextCursor, index: isServerDone ? index + 1 : index },
  };
}

const startOf = (serverNames: readonly string[]): Position => ({
  serverNames,
  index: 0,
  scanCursor: SCAN_START,
  foundKeys: [],
});

const isAtEnd = ({ serverNames, index, foundKeys }: Position) =>
  index >= serverNames.length && foundKeys.length === 0;

const encode = ({ serverNames, index, scanCursor, foundKeys }: Position): string =>
  Buffer.from(JSON.stringify([serverNames, index, scanCursor, foundKeys])).toString('base64url');

/** @throws LockConfigError if the text is not the cursor of a page */
function decode(cursor: string, prefix: string): Position {
  try {
    const fields = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[];
    const [serverNames, index, scanCursor, foundKeys] = fields;
    const isPosition = Number(index) >= 0 && Number.isInteger(index) && isScanCursor(String(scanCursor));
    const areOfPrefix = areTexts(foundKeys) && foundKeys.every((key) => key.startsWith(prefix));
    if (isPosition && areTexts(serverNames) && areOfPrefix)
      return { serverNames, index: Number(index), scanCursor: String(scanCursor), foundKeys };
  } catch {
    // Not the JSON of a cursor.
  }
  throw wrongCursorError(cursor);
}

/** A number of 64 bits. */
const isScanCursor = (text: string) => /^\d{1,20}$/.test(text) && BigInt(text) < 2n ** 64n;

const areTexts = (value: unknown): value is readonly string[] =>
  Array.isArray(value) && value.every((item) => typeof item === 'string');
