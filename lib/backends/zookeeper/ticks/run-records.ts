import { systemClock } from '../../../core/clock.js';
import { deadlineIn } from '../../../core/requests/deadline.js';
import type { TickRecord } from '../../../core/tick-record.js';
import type { ZookeeperClient } from '../session/client.js';
import { multi, remove } from '../wire/operations.js';
import { unlessCode } from '../wire/zookeeper-errors.js';
import { entriesOfHolder } from '../locks/queue-reader.js';
import { OVERTAKEN, type TickSnapshots } from './tick-snapshots.js';

interface Run {
  readonly key: string;
  readonly holder: string;
}

const DONE = Symbol('done');

/** Records what becomes of the newest run of a key. */
export class RunRecords {
  readonly #client: ZookeeperClient;
  readonly #records: TickSnapshots;

  constructor(client: ZookeeperClient, records: TickSnapshots) {
    this.#client = client;
    this.#records = records;
  }

  /**
   * Ends the run and releases its lock in one step. It counts after the lease, too, unless the key was granted again.
   * Returns whether it was this run, or a lock without a run.
   */
  async end({ key, holder }: Run, timeoutMs: number): Promise<boolean> {
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const { record, version, oldest } = await this.#records.read(key, deadline);
      const isHolder = oldest?.value.isHeld === true && oldest.holder === holder;
      const isRun = record?.holder === holder && (isHolder || oldest?.value.isHeld !== true);
      const own = await entriesOfHolder(this.#client, { key, holder }, deadline);
      const releases = own.map(({ path }) => remove(path));
      if (!isRun) {
        if (releases.length === 0) return false;
        if (await this.#run(multi(releases), deadline.leftMs)) return isHolder;
        continue;
      }
      const { holder: _, ...rest } = record;
      const ended = { ...rest, attempt: 0, aliveUntilMs: Math.floor(systemClock.wallMs()) };
      const write = multi([this.#records.write(key, version, ended), ...releases]);
      if (await this.#run(write, deadline.leftMs)) return true;
    }
  }

  /** The run is alive for as long as its lease. */
  onRenewed(run: Run, leaseMs: number, timeoutMs: number): Promise<void> {
    const untilMs = systemClock.wallMs() + leaseMs;
    return this.#update(run, timeoutMs, (record) => ({ ...record, aliveUntilMs: Math.floor(untilMs) }));
  }

  /** The lock of the run was released without the end of the run: the run is dead from now on, and its end no longer counts. */
  onReleased(run: Run, timeoutMs: number): Promise<void> {
    return this.#update(run, timeoutMs, ({ holder: _, ...released }) => ({
      ...released,
      aliveUntilMs: Math.floor(systemClock.wallMs()),
    }));
  }

  async #update(
    { key, holder }: Run,
    timeoutMs: number,
    change: (record: TickRecord) => TickRecord,
  ): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const { record, version } = await this.#records.read(key, deadline);
      if (record?.holder !== holder) return;
      if (await this.#run(this.#records.write(key, version, change(record)), deadline.leftMs)) return;
    }
  }

  /** Returns whether the write took place. Otherwise another one was first. */
  async #run(write: ReturnType<TickSnapshots['write']>, timeoutMs: number): Promise<boolean> {
    const written = this.#client.call(write, timeoutMs).then(() => DONE);
    return (await unlessCode(written, ...OVERTAKEN)) === DONE;
  }
}
