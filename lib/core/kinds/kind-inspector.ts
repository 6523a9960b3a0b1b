import { LockConfigError } from '../errors.js';
import { withJson } from '../json.js';
import { MAX_PERMITS, lockStoreKey, permitListPrefix, permitStoreKey, splitPermitKey } from '../key.js';
import { DEFAULT_LIMIT, type ListOptions, wrongCursorError } from '../list-options.js';
import type { LockInfo, LockInspector, LockList } from '../lock-inspector.js';
import type { KindRegistry } from './kind-registry.js';

interface KindInspectorParts {
  readonly namespace: string;
  readonly inspector: LockInspector;
  readonly registry: KindRegistry;
}

/** Reads and releases the locks of a key, whichever kind it is of. */
export class KindInspector {
  readonly #parts: KindInspectorParts;

  constructor(parts: KindInspectorParts) {
    this.#parts = parts;
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const { namespace, inspector, registry } = this.#parts;
    const info = await inspector.inspectLock(key, lockStoreKey(namespace, key));
    if (info || registry.isPlain(key)) return info;
    const holders = await this.#permitsOf(key);
    return holders[0] ? withJson({ ...holders[0], holders }) : null;
  }

  /** Locks without permits come first. The cursor says in which of the two parts a page has ended. */
  async list({ cursor, ...options }: ListOptions): Promise<LockList> {
    const { namespace, inspector } = this.#parts;
    const [part, position] = cursor === undefined ? [LOCKS] : [cursor[0], cursor.slice(1)];
    if (part !== LOCKS && part !== PERMITS) throw wrongCursorError(cursor ?? '');
    const { limit = DEFAULT_LIMIT } = options;
    const locks: LockInfo[] = [];
    const at = (from: string | undefined) => (from ? { ...options, cursor: from } : options);
    if (part === LOCKS) {
      const page = await inspector.listLocks(at(position), lockStoreKey(namespace, ''));
      locks.push(...page.locks);
      if (page.cursor !== undefined) return { locks, cursor: LOCKS + page.cursor };
      if (locks.length >= limit) return { locks, cursor: PERMITS };
    }
    const rest = { ...at(part === PERMITS ? position : undefined), limit: limit - locks.length };
    const page = await inspector.listLocks(rest, permitListPrefix(namespace));
    locks.push(...page.locks.map((info) => withJson({ ...info, ...splitPermitKey(info.key) })));
    return page.cursor === undefined ? { locks } : { locks, cursor: PERMITS + page.cursor };
  }

  async forceRelease(key: string, fencingToken: bigint, permit: number | undefined): Promise<boolean> {
    const { namespace, inspector, registry } = this.#parts;
    const isReleased =
      permit === undefined && (await inspector.forceRelease(key, lockStoreKey(namespace, key), fencingToken));
    if (isReleased || registry.isPlain(key)) return isReleased;
    const holders = await this.#permitsOf(key);
    const matching = holders.filter(
      (info) => info.fencingToken === fencingToken && (permit ?? info.permit) === info.permit,
    );
    if (matching.length > 1) throw ambiguousTokenError(key, fencingToken);
    const found = matching[0]?.permit;
    if (found === undefined) return false;
    return inspector.forceRelease(key, permitStoreKey(namespace, key, found), fencingToken);
  }

  /** Permits that another process uses may be more than those that this one knows. */
  async #permitsOf(key: string): Promise<LockInfo[]> {
    const { namespace, inspector } = this.#parts;
    const permits = Array.from({ length: MAX_PERMITS }, (_, permit) => permit);
    const found = await Promise.all(
      permits.map(async (permit) => {
        const info = await inspector.inspectLock(key, permitStoreKey(namespace, key, permit));
        return info && withJson({ ...info, permit });
      }),
    );
    return found.filter((info) => info !== null);
  }
}

/** The first letter of a cursor. */
const LOCKS = 'l';
const PERMITS = 'p';

const ambiguousTokenError = (key: string, token: bigint) =>
  new LockConfigError(
    `Expected one permit of "${key}" to have the fencing token ${token}, got several. Pass { permit } too.`,
    { key },
  );
