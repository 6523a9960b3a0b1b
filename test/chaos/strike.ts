/** What a nemesis did. */
export interface Strike {
  readonly nemesis: string;
  readonly isInsideGuarantee: boolean;
  readonly struckAtMs: number;
  readonly healedAtMs: number;
  /** From the end of the strike until everybody was granted something again; undefined: nobody waited for it. */
  readonly recoveryMs?: number | undefined;
}
