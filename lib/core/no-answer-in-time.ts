import { Shared } from './copies.js';

/** The store is silent or slow. That says nothing against it, so it is no reason to leave the line. */
@Shared('NoAnswerInTime')
export class NoAnswerInTime extends Error {
  constructor(limitMs: number) {
    super(`no answer from the store within ${Math.round(limitMs)} ms`);
    this.name = 'NoAnswerInTime';
  }
}
