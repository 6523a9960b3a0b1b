/** So many nodes share the locks: a request reads the entries of one, and a list the next ones only as long as its page is not full. */
const BUCKETS = 1_024;
/** Ends a key or a holder in a name. No encoded text contains it. */
const END = '@';
/** ZooKeeper 3.8 numbers no further: all later nodes of a bucket have this number. */
const MAX_SEQUENCE = 2 ** 31 - 1;
/** Far more than the entries that processes create before they know that a bucket is used up. */
const SPARE_SEQUENCES = 1_000_000;
const ENTRY = /^([^@]*)@([^@]*)@(-?\d{10})$/;

/** A lock, or a place in the queue of its key, as its name says it. */
export interface LockEntry {
  readonly path: string;
  readonly key: string;
  readonly holder: string;
  /** ZooKeeper numbers the nodes of a bucket in the order in which they were created. */
  readonly sequence: number;
}

/**
 * The paths of what the backend keeps in ZooKeeper:
 *
 * - `locks/<bucket>/<key>@<holder>@<sequence>`: a lock, or a place in the queue of its key. It ends with the session.
 * - `ticks/<key>@`: the newest claimed tick.
 * - `history/<key>@/<sequence>`: an entry of the history.
 *
 * Buckets and the parents of the history are containers, which ZooKeeper removes when they are empty. A container for each key
 * would stay for a minute after each lock, and ZooKeeper removes only 10,000 of them a minute.
 */
export class Keyspace {
  readonly root: string;
  readonly locks: string;
  readonly ticks: string;
  readonly history: string;

  constructor(root: string) {
    this.root = root;
    this.locks = `${root}/locks`;
    this.ticks = `${root}/ticks`;
    this.history = `${root}/history`;
  }

  bucketOf(key: string): string {
    return `${this.locks}/${bucketNameOf(key)}`;
  }

  /** What ZooKeeper appends the sequence to. */
  lock(key: string, holder: string): string {
    return `${this.bucketOf(key)}/${encodeText(key)}${END}${encodeText(holder)}${END}`;
  }

  tick(key: string): string {
    return `${this.ticks}/${encodeText(key)}${END}`;
  }

  historyOf(key: string): string {
    return `${this.history}/${encodeText(key)}${END}`;
  }
}

/** The names of the buckets are in the order of the cursors of a list. */
export function bucketNameOf(key: string): string {
  // FNV-1a.
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(key)) hash = Math.imul(hash ^ byte, 0x01000193);
  return String((hash >>> 0) % BUCKETS).padStart(4, '0');
}

/** In names of ASCII alone: ZooKeeper accepts not all characters of Unicode, and no slash. */
const encodeText = encodeURIComponent;

/** The key of the record of a tick; `undefined` if the node is none of this backend. */
export function keyOfTick(name: string): string | undefined {
  if (!name.endsWith(END)) return undefined;
  try {
    return decodeURIComponent(name.slice(0, -END.length));
  } catch {
    return undefined;
  }
}

/** The entry of a name; `undefined` if it is none of this backend. */
export function parseEntry(bucket: string, name: string): LockEntry | undefined {
  const [, key, holder, sequence] = ENTRY.exec(name) ?? [];
  if (key === undefined || holder === undefined) return undefined;
  try {
    const parsed = { key: decodeURIComponent(key), holder: decodeURIComponent(holder) };
    return { ...parsed, path: `${bucket}/${name}`, sequence: Number(sequence) };
  } catch {
    return undefined;
  }
}

/** The entry of a path; `undefined` if it is none of this backend. */
export function entryAt(path: string): LockEntry | undefined {
  const slash = path.lastIndexOf('/');
  return parseEntry(path.slice(0, slash), path.slice(slash + 1));
}

/** Whether the number of an entry is so close to the last one that its order among later entries is not certain. */
export function isNearLast(path: string): boolean {
  const sequence = Number(path.slice(path.lastIndexOf(END) + 1));
  return sequence < 0 || sequence > MAX_SEQUENCE - SPARE_SEQUENCES;
}

/** The entries of one key, or of all, in the order in which they were created. */
export function entriesOf(bucket: string, names: readonly string[], key?: string): LockEntry[] {
  const start = key === undefined ? '' : encodeText(key) + END;
  return names
    .flatMap((name) => (name.startsWith(start) ? (parseEntry(bucket, name) ?? []) : []))
    .sort((one, other) => compareSequences(one.sequence, other.sequence));
}

/** No two entries of which one may be granted are half of the range of 32 bits apart. */
export const compareSequences = (one: number, other: number): number => (one - other) | 0;
