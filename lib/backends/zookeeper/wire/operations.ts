import type { JuteReader, JuteWriter } from './jute.js';
import { refusalError } from './zookeeper-errors.js';

/** One request to ZooKeeper, and how its reply is read. */
export interface Operation<Reply> {
  readonly type: number;
  readonly path: string;
  /** A majority of the servers must agree to it. */
  readonly isWrite: boolean;
  encode(writer: JuteWriter): void;
  decode(reader: JuteReader): Reply;
}

export interface Stat {
  /** The number of the transaction that created the node. */
  readonly czxid: bigint;
  /** How often its data has changed. */
  readonly version: number;
  /** The session that it ends with; 0 if it stays. */
  readonly owner: bigint;
  readonly childCount: number;
}

export interface NodeData {
  readonly data: Buffer;
  readonly stat: Stat;
}

export interface AclEntry {
  readonly permissions: number;
  readonly scheme: string;
  readonly id: string;
}

export type NodeKind = keyof typeof FLAGS;

interface NewNode {
  readonly path: string;
  readonly data: Buffer;
  readonly kind: NodeKind;
  readonly acl: readonly AclEntry[];
}

const FLAGS = { persistent: 0, persistentSequential: 2, ephemeralSequential: 3, container: 4 };
const TYPE = {
  createPlain: 1,
  ...{
    remove: 2,
    exists: 3,
    getData: 4,
    setData: 5,
    sync: 9,
    getChildren: 12,
    check: 13,
    multi: 14,
    create: 15,
  },
  createContainer: 19,
  getEphemerals: 103,
};
/** Also the header of an error in the reply to a multi. */
const END_OF_MULTI = -1;
const ANY_VERSION = -1;

const nothing = () => undefined;

export const create = ({ path, data, kind, acl }: NewNode): Operation<{ path: string; stat: Stat }> => ({
  ...{ type: kind === 'container' ? TYPE.createContainer : TYPE.create, path, isWrite: true },
  encode: (writer) => {
    writer.text(path).bytes(data).int(acl.length);
    for (const { permissions, scheme, id } of acl) writer.int(permissions).text(scheme).text(id);
    writer.int(FLAGS[kind]);
  },
  decode: (reader) => ({ path: reader.text(), stat: readStat(reader) }),
});

export const remove = (path: string, version = ANY_VERSION): Operation<undefined> => ({
  ...{ type: TYPE.remove, path, isWrite: true },
  encode: (writer) => void writer.text(path).int(version),
  decode: nothing,
});

export const setData = (path: string, data: Buffer, version = ANY_VERSION): Operation<Stat> => ({
  ...{ type: TYPE.setData, path, isWrite: true },
  encode: (writer) => void writer.text(path).bytes(data).int(version),
  decode: readStat,
});

/** Needs no permission. The reply has a code if there is no such node. */
export const exists = (path: string): Operation<Stat> => ({
  ...{ type: TYPE.exists, path, isWrite: false },
  encode: (writer) => void writer.text(path).bool(false),
  decode: readStat,
});

export const getData = (path: string): Operation<NodeData> => ({
  ...{ type: TYPE.getData, path, isWrite: false },
  encode: (writer) => void writer.text(path).bool(false),
  decode: (reader) => ({ data: reader.bytes(), stat: readStat(reader) }),
});

/** With `isWatched`, the server sends one notice when the node is gone, or its children have changed. */
export const getChildren = (path: string, isWatched = false): Operation<{ names: string[]; stat: Stat }> => ({
  ...{ type: TYPE.getChildren, path, isWrite: false },
  encode: (writer) => void writer.text(path).bool(isWatched),
  decode: (reader) => ({ names: reader.texts(), stat: readStat(reader) }),
});

/** The nodes below the path that end with this session. */
export const getEphemerals = (path: string): Operation<string[]> => ({
  ...{ type: TYPE.getEphemerals, path, isWrite: false },
  encode: (writer) => void writer.text(path),
  decode: (reader) => reader.texts(),
});

/** Reads that follow see all that was written before. */
export const sync = (path: string): Operation<undefined> => ({
  ...{ type: TYPE.sync, path, isWrite: false },
  encode: (writer) => void writer.text(path),
  decode: nothing,
});

/** In a {@link multi}: the node exists. */
export const check = (path: string): Operation<undefined> => ({
  ...{ type: TYPE.check, path, isWrite: true },
  encode: (writer) => void writer.text(path).int(ANY_VERSION),
  decode: nothing,
});

/** All of the operations in one step, or none of them. */
export const multi = (operations: readonly Operation<unknown>[]): Operation<undefined> => ({
  ...{ type: TYPE.multi, path: operations[0]?.path ?? '/', isWrite: true },
  encode: (writer) => {
    for (const operation of operations) {
      writer.int(operation.type).bool(false).int(-1);
      operation.encode(writer);
    }
    writer.int(END_OF_MULTI).bool(true).int(-1);
  },
  decode: (reader) => {
    for (const { path } of operations) {
      const [type] = [reader.int(), reader.bool(), reader.int()];
      const code = type === END_OF_MULTI ? reader.int() : 0;
      if (code !== 0) throw refusalError(code, path);
      skipResult(type, reader);
    }
    return undefined;
  },
});

/** An operation in a multi may have another result than alone. */
function skipResult(type: number, reader: JuteReader): void {
  const hasPath = [TYPE.createPlain, TYPE.create, TYPE.createContainer].includes(type);
  if (hasPath) reader.text();
  if (type === TYPE.setData || (hasPath && type !== TYPE.createPlain)) readStat(reader);
}

function readStat(reader: JuteReader): Stat {
  const czxid = reader.long();
  // The number of the newest change, and two times.
  for (let skipped = 0; skipped < 3; skipped += 1) reader.long();
  const [version] = [reader.int(), reader.int(), reader.int()];
  const owner = reader.long();
  const [, childCount] = [reader.int(), reader.int()];
  reader.long();
  return { czxid, version, owner, childCount };
}
