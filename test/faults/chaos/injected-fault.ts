/** What a nemesis did. */
export interface InjectedFault {
  readonly nemesis: string;
  readonly isInsideGuarantee: boolean;
  readonly startedAtMs: number;
  readonly healedAtMs: number;
  /** From the end of the strike until everybody was granted something again; undefined: nobody waited for it. */
  readonly recoveryMs?: number | undefined;
}
