import type { EventSource } from '../core/events.js';

/** What all metrics of one template have in common, and the numbers that are read when metrics are collected. */
export interface Series {
  /** One object for all measurements. */
  readonly attributes: { readonly template: string; readonly backend: string; readonly module: string };
  /** How many locks are held; `undefined` if none ever was. */
  held?: number;
  /** How many callers waited at the last collection; `undefined` if none ever did. */
  waiting?: number;
  /** How many terms this process leads; `undefined` if it never led. */
  terms?: number;
}

type SeriesFields = Pick<EventSource, 'backend' | 'module'> & { readonly template: string };

/** A process that makes templates from unknown ids would otherwise make one series for each of them. */
const MAX_SERIES = 500;
const OTHER = 'other';

/** The series of this process for one kind of metrics. When there are too many, all further templates share one. */
export class SeriesRegistry {
  onAdded: ((added: Series) => void) | undefined;
  readonly #all: Series[] = [];
  /** A template has several series only if several modules use it. */
  readonly #byTemplate = new Map<string, Series[]>();

  [Symbol.iterator](): IterableIterator<Series> {
    return this.#all.values();
  }

  find({ template, backend, module }: SeriesFields): Series {
    const found = this.#byTemplate.get(template);
    for (const one of found ?? [])
      if (one.attributes.backend === backend && one.attributes.module === module) return one;
    if (this.#all.length >= MAX_SERIES && template !== OTHER)
      return this.find({ template: OTHER, backend, module });
    const added: Series = { attributes: { template, backend, module } };
    this.#all.push(added);
    if (found) found.push(added);
    else this.#byTemplate.set(template, [added]);
    this.onAdded?.(added);
    return added;
  }
}
