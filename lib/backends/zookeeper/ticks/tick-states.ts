import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import { type TickRecord, isOutdated, pausedRecordOf, tickStateOf } from '../../../core/tick-record.js';
import { type KeyCleanUp, type TickState, resumedTick } from '../../../core/tick.js';
import { entriesOf, keyOfTick } from '../keyspace.js';
import type { ZookeeperClient } from '../session/client.js';
import { settle } from '../session/settle.js';
import { decodeJson } from '../stored-json.js';
import { type NodeData, getChildren, getData, remove } from '../wire/operations.js';
import { CODE, unlessCode } from '../wire/zookeeper-errors.js';
import { OVERTAKEN, type TickSnapshots } from './tick-snapshots.js';

const MAX_REMOVED = 100;
const DONE = Symbol('done');

/** Reads, registers, pauses and resumes the ticks of a key: reads its record, and writes it if it has not changed since. */
export class TickStates {
  readonly #client: ZookeeperClient;
  readonly #records: TickSnapshots;

  constructor(client: ZookeeperClient, records: TickSnapshots) {
    this.#client = client;
    this.#records = records;
  }

  async read(key: string, timeoutMs: number): Promise<TickState> {
    return tickStateOf(await this.#records.read(key, deadlineIn(timeoutMs)));
  }

  async register(key: string, timeoutMs: number): Promise<TickState> {
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const snapshot = await this.#records.read(key, deadline);
      const state = tickStateOf(snapshot);
      if (state.claimed) return state;
      const record = { ...resumedTick(state), aliveUntilMs: 0 };
      const write = this.#records.write(key, snapshot.version, record);
      const written = this.#client.call(write, deadline.leftMs).then(() => DONE);
      if ((await unlessCode(written, ...OVERTAKEN)) === DONE) return state;
    }
  }

  async setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const snapshot = await this.#records.read(key, deadline);
      const record = pausedRecordOf(snapshot, isPaused);
      if (!record) return;
      if (await this.#writePause(key, { version: snapshot.version, record, deadline })) return;
    }
  }

  /** Deletes the records of ticks that can no longer be claimed, once a newer one was granted. Never rejects. */
  async cleanUp({ fromKey, beforeKey, afterMs }: KeyCleanUp, timeoutMs: number): Promise<void> {
    try {
      const deadline = deadlineIn(timeoutMs);
      const { ticks } = this.#client.keyspace;
      const { names } = await this.#client.call(getChildren(ticks), deadline.leftMs);
      const old = names
        .flatMap((name) => keyOfTick(name) ?? [])
        .filter((key) => isBetween(key, fromKey, beforeKey))
        .slice(0, MAX_REMOVED);
      await Promise.all(old.map((key) => this.#removeUnused(key, afterMs, deadline)));
    } catch {
      // The records do no harm, and the next grant tries again.
    }
  }

  /** A pause that arrives later would undo a later resumption. So a failure is reported only once it cannot. */
  async #writePause(
    key: string,
    { version, record, deadline }: { version: number | undefined; record: TickRecord; deadline: Deadline },
  ): Promise<boolean> {
    const session = await this.#client.ready(deadline);
    const written = session.send(this.#records.write(key, version, record)).then(() => DONE);
    try {
      return (await session.await(unlessCode(written, ...OVERTAKEN), deadline)) === DONE;
    } catch (cause) {
      await settle(session, written);
      throw cause;
    }
  }

  /** A record is kept while its run lasts. */
  async #removeUnused(key: string, afterMs: number, deadline: Deadline): Promise<void> {
    const { keyspace, session } = this.#client;
    const path = keyspace.tick(key);
    const bucket = keyspace.bucketOf(key);
    const replies = [getData(path), getChildren(bucket)].map((one) =>
      unlessCode<object>(session.send<object>(one), CODE.noNode),
    );
    const [node, children] = (await session.await(Promise.all(replies), deadline)) as [
      NodeData | undefined,
      { readonly names: string[] } | undefined,
    ];
    if (!node || entriesOf(bucket, children?.names ?? [], key).length > 0) return;
    if (!isOutdated(decodeJson(node.data, path) as TickRecord, afterMs)) return;
    await unlessCode(this.#client.call(remove(path, node.stat.version), deadline.leftMs), ...OVERTAKEN);
  }
}

/** Keys are compared byte by byte. */
const isBetween = (key: string, from: string, before: string) =>
  Buffer.compare(Buffer.from(key), Buffer.from(from)) >= 0 &&
  Buffer.compare(Buffer.from(key), Buffer.from(before)) < 0;
