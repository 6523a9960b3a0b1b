/** A COMMIT or ROLLBACK that was sent. */
export interface TransactionEnd {
  readonly hasTakenEffect: boolean;
}

interface PendingEnd extends TransactionEnd {
  hasTakenEffect: boolean;
  readonly endStep: () => void;
}

/** The ends of transactions that have not taken effect. A subscriber may end a nested transaction before the end of the outer one. */
export class PendingEnds {
  readonly #pending: PendingEnd[] = [];

  /** `endStep` ends the step in which it was sent: subscribers may wait for the transaction of another request. */
  add(endStep: () => void): TransactionEnd {
    const end = { hasTakenEffect: false, endStep };
    this.#pending.push(end);
    return end;
  }

  /** The newest has taken effect. Returns whether there is one. */
  takeEffect(): boolean {
    const end = this.#pending.pop();
    if (!end) return false;
    end.hasTakenEffect = true;
    end.endStep();
    return true;
  }

  /** It has failed, if it has not taken effect. */
  remove(end: TransactionEnd): void {
    const index = this.#pending.indexOf(end as PendingEnd);
    if (index !== -1) this.#pending.splice(index, 1);
  }
}
