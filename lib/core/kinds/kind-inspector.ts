import { LockConfigError } from '../errors.js';
import { withJson } from '../json.js';
import { MAX_PERMITS, lockStoreKey, permitListPrefix, permitStoreKey, splitPermitKey } from '../key.js';
import { DEFAULT_LIMIT, type ListOptions, wrongCursorError } from '../list-options.js';
import type { LockInfo, LockInspector, LockList } from '../lock-inspector.js';
import { ModeInspector } from './modes/mode-inspector.js';
import type { KindRegistry } from './kind-registry.js';

interface KindInspectorParts {
  readonly namespace: string;
  readonly inspector: LockInspector;
  readonly registry: KindRegistry;
}

/** Reads and releases the locks of a key, whichever kind it is of. */
export class KindInspector {
  readonly #parts: KindInspectorParts;
  readonly #modes: ModeInspector;

  constructor(parts: KindInspectorParts) {
    this.#parts = parts;
    this.#modes = new ModeInspector(parts);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const { namespace, inspector, registry } = this.#parts;
    const info = await inspector.inspectLock(key, lockStoreKey(namespace, key));
    if (info || registry.isPlain(key)) return info;
    const [permits, slots] = await Promise.all([this.#permitsOf(key), this.#modes.holdersOf(key)]);
    const holders = [...permits, ...slots];
    return holders[0] ? withJson({ ...holders[0], holders }) : null;
  }

  /** Plain locks come first, then permits, then modes. The cursor says in which of these parts a page has ended. */
  async list({ cursor, ...options }: ListOptions): Promise<LockList> {
    const { namespace, inspector } = this.#parts;
    const [part, position] = cursor === undefined ? [LOCKS] : [cursor[0], cursor.slice(1)];
    if (part !== LOCKS && part !== PERMITS && part !== MODES) throw wrongCursorError(cursor ?? '');
    const { limit = DEFAULT_LIMIT } = options;
    const locks: LockInfo[] = [];
    const at = (from: string | undefined) => (from ? { ...options, cursor: from } : options);
    if (part === LOCKS) {
      const page = await inspector.listLocks(at(position), lockStoreKey(namespace, ''));
      locks.push(...page.locks);
      if (page.cursor !== undefined) return { locks, cursor: LOCKS + page.cursor };
      if (locks.length >= limit) return { locks, cursor: PERMITS };
    }
    if (part !== MODES) {
      const rest = { ...at(part === PERMITS ? position : undefined), limit: limit - locks.length };
      const page = await inspector.listLocks(rest, permitListPrefix(namespace));
      locks.push(...page.locks.map((info) => withJson({ ...info, ...splitPermitKey(info.key) })));
      if (page.cursor !== undefined) return { locks, cursor: PERMITS + page.cursor };
      if (locks.length >= limit) return { locks, cursor: MODES };
    }
    const rest = { ...at(part === MODES ? position : undefined), limit: limit - locks.length };
    const page = await this.#modes.list(rest);
    locks.push(...page.locks);
    return page.cursor === undefined ? { locks } : { locks, cursor: MODES + page.cursor };
  }

  async forceRelease(key: string, fencingToken: bigint, permit: number | undefined): Promise<boolean> {
    const { namespace, inspector, registry } = this.#parts;
    const isReleased =
      permit === undefined && (await inspector.forceRelease(key, lockStoreKey(namespace, key), fencingToken));
    if (isReleased || registry.isPlain(key)) return isReleased;
    const [permits, slots] = await Promise.all([this.#permitsOf(key), this.#modes.holdersOf(key)]);
    const holders = [...permits, ...slots];
    const matching = holders.filter(
      (info) => info.fencingToken === fencingToken && (permit ?? info.permit) === info.permit,
    );
    if (matching.length > 1) throw ambiguousTokenError(key, fencingToken);
    const found = matching[0]?.permit;
    if (found === undefined) return false;
    if (matching[0]?.mode) return this.#modes.forceRelease(key, matching[0]);
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
const MODES = 'm';

const ambiguousTokenError = (key: string, token: bigint) =>
  new LockConfigError(
    `Expected one permit of "${key}" to have the fencing token ${token}, got several. Pass { permit } too.`,
    { key },
  );
