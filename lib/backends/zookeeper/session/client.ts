import type { Deadline } from '../../../core/requests/deadline.js';
import { deadlineIn } from '../../../core/requests/deadline.js';
import type { Keyspace } from '../keyspace.js';
import type { ConnectionSettings } from '../wire/connection-types.js';
import { type AclEntry, type NodeKind, type Operation, create, exists, sync } from '../wire/operations.js';
import { CODE, SessionOverError, closedError, codeOf, unlessCode } from '../wire/zookeeper-errors.js';
import type { Hosts } from './hosts.js';
import { Session } from './session.js';

export interface ClientParts {
  readonly hosts: Hosts;
  readonly settings: ConnectionSettings;
  readonly sessionTimeoutMs: number;
  readonly tickTimeMs: number;
  readonly keyspace: Keyspace;
  readonly acl: readonly AclEntry[];
}

const NO_DATA = Buffer.alloc(0);

/** Sends requests over the present session of this process, and opens another when it has ended. */
export class ZookeeperClient {
  readonly #parts: ClientParts;
  readonly #onLost = new Set<() => void>();
  readonly #onNotice = new Set<(path: string) => void>();
  readonly #onContinued = new Set<(session: Session) => void>();
  #session: Session | undefined;
  #isClosed = false;
  /** Locks of the session are held or waited for. */
  isInUse: (session: Session) => boolean = () => false;

  constructor(parts: ClientParts) {
    this.#parts = parts;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** The present session, which may have no connection yet. */
  get session(): Session {
    if (this.#isClosed) throw closedError();
    if (!this.#session || this.#session.isOver) this.#session = this.#createSession();
    return this.#session;
  }

  /** The present session once it has a connection, or the next one if it turns out to be over. */
  async ready(deadline: Deadline): Promise<Session> {
    for (;;) {
      const { session } = this;
      try {
        await session.ready(deadline.leftMs);
        return session;
      } catch (error) {
        if (!(error instanceof SessionOverError)) throw error;
      }
    }
  }

  /** Sends one operation, and waits for its reply. */
  async call<Reply>(operation: Operation<Reply>, timeoutMs: number): Promise<Reply> {
    const deadline = deadlineIn(timeoutMs);
    const session = await this.ready(deadline);
    return session.await(session.send(operation), deadline);
  }

  /** Reads what was written before, also by other processes. */
  async read<Reply>(operation: Operation<Reply>, timeoutMs: number): Promise<Reply> {
    const [reply] = await this.readAll([operation], timeoutMs);
    return reply as Promise<Reply>;
  }

  /** The replies to several reads, all of which have arrived. */
  async readAll<Reply>(
    operations: readonly Operation<Reply>[],
    timeoutMs: number,
  ): Promise<readonly Promise<Reply>[]> {
    const deadline = deadlineIn(timeoutMs);
    const session = await this.ready(deadline);
    const replies = [
      session.send(sync(this.#parts.keyspace.root)),
      ...operations.map((one) => session.send(one)),
    ];
    const [synced] = await session.await(Promise.allSettled(replies), deadline);
    if (synced?.status === 'rejected') throw synced.reason;
    return replies.slice(1) as Promise<Reply>[];
  }

  /** Creates a node whose parent may have been removed because it was empty. */
  async createIn(
    parent: string,
    node: { readonly path: string; readonly data: Buffer; readonly kind: NodeKind },
    deadline: Deadline,
  ): Promise<void> {
    const operation = create({ ...node, acl: this.acl });
    while ((await unlessCode(this.call(operation, deadline.leftMs), CODE.noNode)) === undefined)
      await this.createContainer(this.session, parent, deadline);
  }

  /** Creates the parent of locks or of a history. ZooKeeper removes it some time after its last child. */
  async createContainer(session: Session, path: string, deadline: Deadline): Promise<void> {
    const operation = create({ path, data: NO_DATA, kind: 'container', acl: this.acl });
    const send = () => unlessCode(session.send(operation), CODE.nodeExists);
    try {
      await session.await(send(), deadline);
    } catch (error) {
      if (codeOf(error) !== CODE.noNode) throw error;
      await this.#createRoots(session, deadline);
      await session.await(send(), deadline);
    }
  }

  get acl(): readonly AclEntry[] {
    return this.#parts.acl;
  }

  get keyspace(): Keyspace {
    return this.#parts.keyspace;
  }

  /** Calls back when watches may have been lost. */
  onLost(listener: () => void): void {
    this.#onLost.add(listener);
  }

  /** Calls back when a session goes on over another connection. */
  onContinued(listener: (session: Session) => void): void {
    this.#onContinued.add(listener);
  }

  /** Calls back with the path of a watched node that has ended. */
  onNotice(listener: (path: string) => void): void {
    this.#onNotice.add(listener);
  }

  /** Requests fail from now on, also those that have begun. Locks that are still held end with the session. */
  async close(endsLocks: boolean): Promise<void> {
    this.#isClosed = true;
    const session = this.#session;
    this.#session = undefined;
    await session?.close(endsLocks);
  }

  /** For a new request after {@link close}. */
  reopen(): void {
    this.#isClosed = false;
  }

  #createSession(): Session {
    const { keyspace, acl: _, ...parts } = this.#parts;
    const session: Session = new Session({
      ...parts,
      root: keyspace.root,
      prepare: (deadline) => this.#createRoots(session, deadline),
      onNotice: (path) => {
        for (const listener of this.#onNotice) listener(path);
      },
      onContinued: () => {
        for (const listener of this.#onContinued) listener(session);
      },
      onLost: () => {
        for (const listener of this.#onLost) listener();
      },
      isInUse: () => this.isInUse(session),
    });
    return session;
  }

  /** A user may have permission for a part of the nodes only, so none that exists is created. */
  async #createRoots(session: Session, deadline: Deadline): Promise<void> {
    const { root, locks, ticks, history } = this.keyspace;
    const names = root.split('/').slice(1);
    const paths = [
      ...names.map((_, index) => `/${names.slice(0, index + 1).join('/')}`),
      locks,
      ticks,
      history,
    ];
    const reads = paths.map((path) => unlessCode(session.send(exists(path)), CODE.noNode));
    const found = await session.await(Promise.all(reads), deadline);
    for (const path of paths.filter((_, index) => !found[index])) {
      const operation = create({ path, data: NO_DATA, kind: 'persistent', acl: this.acl });
      await session.await(unlessCode(session.send(operation), CODE.nodeExists), deadline);
    }
  }
}
