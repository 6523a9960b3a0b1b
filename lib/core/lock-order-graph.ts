/** A lock in the order of locks. */
export interface OrderedLock {
  readonly key: string;
  readonly template: string;
}

/** A call that held a lock of the template `from` waited for one of the template `to`: the first such call. */
export interface LockOrderEdge {
  readonly from: string;
  readonly to: string;
  /** The key that the call held. */
  readonly heldKey: string;
  /** The key that the call waited for. */
  readonly key: string;
  /** Where the call came from. */
  readonly stack: string;
  /**
   * Only if this edge closes a circle: the edges that were there before and lead from `to` back to `from`. Empty if both
   * keys have the same template.
   */
  readonly opposite?: readonly LockOrderEdge[];
}

/** About 3 MB of stacks. Each template has at least one edge, so this also limits the templates. */
export const MAX_EDGES = 1_000;

const PLACEHOLDER = /\{[^{}]*\}/g;

/** `order:{0}`, `order:{0.id}` and `order:{n}` are locks of the same kind, from methods with different parameters. */
const nodeOf = ({ template }: OrderedLock) => template.replace(PLACEHOLDER, '{}');

/**
 * In which order locks were acquired, as a directed graph of their templates. Like lockdep of the Linux kernel, it finds
 * a possible deadlock from the orders alone, even if the calls never met.
 */
export class LockOrderGraph {
  readonly #edgesFrom = new Map<string, Map<string, LockOrderEdge>>();
  readonly #edges: LockOrderEdge[] = [];

  /** All edges, the oldest first. */
  get edges(): readonly LockOrderEdge[] {
    return this.#edges;
  }

  /** Whether new edges are no longer recorded, and so no longer checked. */
  get isFull(): boolean {
    return this.#edges.length >= MAX_EDGES;
  }

  find(held: OrderedLock, wanted: OrderedLock): LockOrderEdge | undefined {
    return this.#edgesFrom.get(nodeOf(held))?.get(nodeOf(wanted));
  }

  /** Adds an edge that is not there yet. */
  add(held: OrderedLock, wanted: OrderedLock, stack: string): LockOrderEdge {
    const [from, to] = [nodeOf(held), nodeOf(wanted)];
    const opposite = this.#findPath(to, from);
    const edge = {
      ...{ from: held.template, to: wanted.template, heldKey: held.key, key: wanted.key, stack },
      ...(opposite && { opposite }),
    };
    const edges = this.#edgesFrom.get(from) ?? new Map<string, LockOrderEdge>();
    this.#edgesFrom.set(from, edges.set(to, edge));
    this.#edges.push(edge);
    return edge;
  }

  /**
   * Returns the shortest path, by breadth-first search. Edges that close a circle are not followed: each circle has one,
   * and it was reported. So one wrong call does not make others look wrong.
   */
  #findPath(start: string, end: string): LockOrderEdge[] | undefined {
    const reachedBy = new Map<string, { readonly node: string; readonly edge: LockOrderEdge } | undefined>();
    reachedBy.set(start, undefined);
    // The loop also visits the nodes that it adds.
    for (const node of reachedBy.keys()) {
      if (node === end) break;
      for (const [next, edge] of this.#edgesFrom.get(node) ?? [])
        if (!edge.opposite && !reachedBy.has(next)) reachedBy.set(next, { node, edge });
    }
    if (!reachedBy.has(end)) return undefined;
    const path: LockOrderEdge[] = [];
    for (let step = reachedBy.get(end); step; step = reachedBy.get(step.node)) path.unshift(step.edge);
    return path;
  }
}
