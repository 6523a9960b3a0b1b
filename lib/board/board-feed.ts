import { type Timer, systemClock } from '../core/clock.js';
import type { BoardReader } from './board-reader.js';

/** Which page of the locks somebody looks at. */
export interface BoardView {
  readonly prefix: string;
  readonly cursor: string | undefined;
}

/** One open page in a browser. */
export interface Viewer {
  readonly view: BoardView;
  send(topic: Topic, data: object): void;
  end(): void;
}

/** The parts of the page that are sent on their own. The order is that in which a new viewer gets them. */
const TOPICS = ['store', 'leaders', 'jobs', 'events'] as const;
export type Topic = (typeof TOPICS)[number] | 'locks';

const POLL_INTERVAL_MS = 1_000;
/** Leaders and jobs change less often than locks, so only every third poll reads them. */
const POLLS_PER_OVERVIEW = 3;

/**
 * Reads the store once a second for all viewers together, and not at all without viewers. If they look at different
 * pages of the locks, these pages take turns.
 */
export class BoardFeed {
  readonly #reader: BoardReader;
  readonly #viewers = new Set<Viewer>();
  /** What was last read, for viewers that come later. */
  readonly #latest = new Map<Topic, object>();
  /** The pages that are looked at, by {@link nameOf}. The first one is read next. Without a value, it was not read yet. */
  readonly #pages = new Map<string, object | undefined>();
  /** The series of polls that is going on. */
  #polling: object | undefined;
  #nextPoll: Timer | undefined;
  #isReadingAtOnce = false;
  #isClosed = false;

  constructor(reader: BoardReader) {
    this.#reader = reader;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Sends to the viewer until the returned function is called. */
  add(viewer: Viewer): () => void {
    this.#viewers.add(viewer);
    for (const topic of TOPICS) {
      const data = this.#latest.get(topic);
      if (data) viewer.send(topic, data);
    }
    const name = nameOf(viewer.view);
    const page = this.#pages.get(name);
    const isNew = !this.#pages.has(name);
    if (page) viewer.send('locks', page);
    if (isNew) this.#pages.set(name, undefined);
    if (!this.#polling) {
      this.#polling = {};
      void this.#poll(this.#polling);
    } else if (isNew) void this.#readAtOnce(viewer.view);
    return () => this.#remove(viewer);
  }

  /** Reads a job that somebody has just changed, and sends it to the viewers. Never rejects. */
  async refreshJob(key: string): Promise<void> {
    if (this.#viewers.size === 0) return;
    this.#publish('jobs', { jobs: await this.#reader.readJobs(key) });
  }

  /** Ends all streams, so that the server can close. */
  close(): void {
    this.#isClosed = true;
    for (const viewer of [...this.#viewers]) viewer.end();
    this.#viewers.clear();
    this.#stop();
  }

  #remove(viewer: Viewer): void {
    this.#viewers.delete(viewer);
    const name = nameOf(viewer.view);
    if (![...this.#viewers].some(({ view }) => nameOf(view) === name)) this.#pages.delete(name);
    if (this.#viewers.size === 0) this.#stop();
  }

  /** What was read is forgotten, because the next viewer may come in an hour. */
  #stop(): void {
    this.#polling = undefined;
    this.#nextPoll?.cancel();
    this.#latest.clear();
    this.#pages.clear();
    this.#reader.forgetJobs();
  }

  async #poll(own: object, count = 0): Promise<void> {
    const startedMs = systemClock.monotonicMs();
    const store = await this.#reader.readStore();
    if (this.#polling !== own) return;
    this.#publish('store', store);
    this.#publishEvents();
    const checkedMs = systemClock.monotonicMs();
    if (store.status !== 'down') {
      const isOverviewDue = count % POLLS_PER_OVERVIEW === 0;
      await Promise.all([this.#readPage(this.#takeTurn()), isOverviewDue && this.#readOverview()]);
    }
    if (this.#polling !== own) return;
    const endedMs = systemClock.monotonicMs();
    // A store whose list takes long would otherwise be read without a pause.
    const pauseMs = Math.max(POLL_INTERVAL_MS - (endedMs - startedMs), endedMs - checkedMs);
    this.#nextPoll = systemClock.after(pauseMs, () => void this.#poll(own, count + 1));
  }

  /** The page whose turn it is. */
  #takeTurn(): BoardView | undefined {
    const names = [...this.#pages.keys()];
    const name = names.find((one) => this.#pages.get(one) === undefined) ?? names[0];
    if (name === undefined) return undefined;
    const page = this.#pages.get(name);
    this.#pages.delete(name);
    this.#pages.set(name, page);
    return [...this.#viewers].find(({ view }) => nameOf(view) === name)?.view;
  }

  /**
   * Somebody has just asked for this page: a poll may be a second away, and it may be the turn of another page. One such page
   * is read at a time. Others come first in the next polls, so that many searches are not many lists at once.
   */
  async #readAtOnce(view: BoardView): Promise<void> {
    if (this.#isReadingAtOnce) return;
    this.#isReadingAtOnce = true;
    await this.#readPage(view);
    this.#isReadingAtOnce = false;
  }

  async #readPage(view: BoardView | undefined): Promise<void> {
    if (!view) return;
    const { prefix, cursor } = view;
    const list = await this.#reader.readLocks({ prefix, ...(cursor !== undefined && { cursor }) });
    const name = nameOf(view);
    const viewers = [...this.#viewers].filter((viewer) => nameOf(viewer.view) === name);
    if (viewers.length === 0) return;
    const page = 'error' in list ? list : { locks: list.locks, nextCursor: list.cursor };
    const data = { prefix, cursor, ...page, nowMs: systemClock.wallMs() };
    this.#pages.set(name, data);
    for (const viewer of viewers) viewer.send('locks', data);
  }

  async #readOverview(): Promise<void> {
    const reads = [
      this.#reader.readLeaders().then((leaders) => this.#publish('leaders', { leaders })),
      this.#reader.readJobs().then((jobs) => this.#publish('jobs', { jobs })),
    ];
    await Promise.all(reads);
  }

  /** Only if there are new ones: they are most of what is sent. */
  #publishEvents(): void {
    const { events } = this.#reader;
    const sent = this.#latest.get('events') as { readonly events: unknown } | undefined;
    if (sent?.events !== events) this.#publish('events', { events });
  }

  #publish(topic: Topic, fields: object): void {
    if (this.#viewers.size === 0) return;
    const data = { ...fields, nowMs: systemClock.wallMs() };
    this.#latest.set(topic, data);
    for (const viewer of this.#viewers) viewer.send(topic, data);
  }
}

const nameOf = ({ prefix, cursor = '' }: BoardView) => JSON.stringify([prefix, cursor]);
