import { LockConfigError } from '../errors.js';
import { withJson } from '../json.js';
import {
  MAX_PERMITS,
  lockStoreKey,
  permitBaseKey,
  permitListPrefix,
  permitStoreKey,
  splitPermitKey,
} from '../store-key.js';
import { DEFAULT_LIMIT, type ListOptions, wrongCursorError } from '../list-options.js';
import type { LockInfo, LockAdmin, LockList } from '../lock-admin.js';
import { MAX_LOCAL_HANDOFFS } from '../waiting/handoff.js';
import { ReadWriteInspector } from './read-write/read-write-inspector.js';
import type { KindRegistry } from './kind-registry.js';
import type { PermitLines } from './permit-lines.js';

interface KindInspectorParts {
  readonly namespace: string;
  readonly lockAdmin: LockAdmin;
  readonly registry: KindRegistry;
  readonly permitLines: PermitLines;
}

/** Reads and releases the locks of a key, whichever kind it is of. */
export class KindInspector {
  readonly #parts: KindInspectorParts;
  readonly #readWrite: ReadWriteInspector;

  constructor(parts: KindInspectorParts) {
    this.#parts = parts;
    this.#readWrite = new ReadWriteInspector(parts);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const { namespace, lockAdmin, registry } = this.#parts;
    const info = await lockAdmin.inspectLock(key, lockStoreKey(namespace, key));
    if (info || registry.isPlain(key)) return info;
    const holders = await this.#holdersOf(key);
    return holders[0] ? withJson({ ...holders[0], holders }) : null;
  }

  /** Plain locks come first, then permits, then read and write locks. A cursor begins with the kind that its page continues. */
  async list({ cursor = LOCKS, ...options }: ListOptions): Promise<LockList> {
    const first = LISTED_KINDS.findIndex((kind) => kind === cursor[0]);
    if (first === -1) throw wrongCursorError(cursor);
    const { limit = DEFAULT_LIMIT } = options;
    const locks: LockInfo[] = [];
    let position = cursor.slice(1);
    for (const kind of LISTED_KINDS.slice(first)) {
      if (locks.length >= limit) return { locks, cursor: kind };
      const rest = { ...options, limit: limit - locks.length };
      const page = await this.#listKind(kind, position ? { ...rest, cursor: position } : rest);
      locks.push(...page.locks);
      if (page.cursor !== undefined) return { locks, cursor: kind + page.cursor };
      position = '';
    }
    return { locks };
  }

  async #listKind(kind: (typeof LISTED_KINDS)[number], options: ListOptions): Promise<LockList> {
    const { namespace, lockAdmin } = this.#parts;
    if (kind === LOCKS) return lockAdmin.listLocks(options, lockStoreKey(namespace, ''));
    if (kind === READ_WRITE) return this.#readWrite.list(options);
    const page = await lockAdmin.listLocks(options, permitListPrefix(namespace));
    return {
      ...page,
      locks: page.locks.map((info) => this.#describePermit(info, splitPermitKey(info.key))),
    };
  }

  async forceRelease(key: string, fencingToken: bigint, permit: number | undefined): Promise<boolean> {
    const { namespace, lockAdmin, registry } = this.#parts;
    const isReleased =
      permit === undefined && (await lockAdmin.forceRelease(key, lockStoreKey(namespace, key), fencingToken));
    if (isReleased || registry.isPlain(key)) return isReleased;
    const holders = (await this.#holdersOf(key)).filter((info) => (permit ?? info.permit) === info.permit);
    const exact = holders.filter((info) => info.fencingToken === fencingToken);
    const possible = permit === undefined ? holders.filter((info) => mayBeOf(info, fencingToken)) : holders;
    const matching = exact.length > 0 ? exact : possible;
    if (matching.length > 1) throw ambiguousTokenError(key, fencingToken);
    const found = matching[0]?.permit;
    if (found === undefined) return false;
    if (matching[0]?.mode) return this.#readWrite.forceRelease(key, { ...matching[0], fencingToken });
    return lockAdmin.forceRelease(key, permitStoreKey(namespace, key, found), fencingToken);
  }

  /** The holders of permits, and of read and write locks. */
  async #holdersOf(key: string): Promise<LockInfo[]> {
    const [permits, readWrite] = await Promise.all([this.#permitsOf(key), this.#readWrite.holdersOf(key)]);
    return [...permits, ...readWrite];
  }

  /** Callers that wait in line wait for each permit of the key. */
  #describePermit(info: LockInfo, { key, permit }: { key: string; permit: number }): LockInfo {
    const { namespace, permitLines } = this.#parts;
    const inLine = permitLines.countWaiters(permitBaseKey(namespace, key));
    return withJson({ ...info, key, permit, waiting: info.waiting + inLine });
  }

  /** Permits that another process uses may be more than those that this one knows. */
  async #permitsOf(key: string): Promise<LockInfo[]> {
    const { namespace, lockAdmin } = this.#parts;
    const permits = Array.from({ length: MAX_PERMITS }, (_, permit) => permit);
    const found = await Promise.all(
      permits.map(async (permit) => {
        const info = await lockAdmin.inspectLock(key, permitStoreKey(namespace, key, permit));
        return info && this.#describePermit(info, { key, permit });
      }),
    );
    return found.filter((info) => info !== null);
  }
}

/**
 * Whether the token may be that of a later caller of the grant. For a grant of another process, only the token of its first
 * caller is known here. The backend decides.
 */
const mayBeOf = (info: LockInfo, token: bigint): boolean =>
  token > info.fencingToken && token < info.fencingToken + BigInt(MAX_LOCAL_HANDOFFS);

/** The first letter of a cursor. */
const LOCKS = 'l';
const PERMITS = 'p';
const READ_WRITE = 'r';
const LISTED_KINDS = [LOCKS, PERMITS, READ_WRITE] as const;

const ambiguousTokenError = (key: string, token: bigint) =>
  new LockConfigError(
    `Expected one holder of "${key}" to have the fencing token ${token}, got several. Pass { permit } too.`,
    { key },
  );
