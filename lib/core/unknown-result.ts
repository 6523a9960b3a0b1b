/** The outcome is unknown: the request may or may not have taken effect, or may do so later. */
export interface UnknownResult {
  readonly kind: 'unknown';
  readonly cause: unknown;
  /** `false` if the request was certainly never sent. Then there is nothing to withdraw. */
  readonly wasSent?: false;
  /**
   * The connection was lost before the result arrived. Another connection may work, so the core repeats an acquisition
   * once.
   */
  readonly isConnectionLost?: true;
}

/** The result of a request that may have reached the store. */
export const unknownResult = (cause: unknown): UnknownResult => ({ kind: 'unknown', cause });

/** The result of a request whose connection was lost before a reply arrived. */
export const connectionLostResult = (cause: unknown): UnknownResult => ({
  kind: 'unknown',
  cause,
  isConnectionLost: true,
});

/** The result of a request that was certainly never sent. */
export const neverSentResult = (cause: unknown): UnknownResult => ({
  kind: 'unknown',
  cause,
  wasSent: false,
});
