import type { RunStatement } from './named-parameters.js';
import { type ScanStatement, createScanStatements } from './scan-statements.js';
import { type RowStatement, createRowStatements } from './row-statements.js';
import { type TickStatement, createTickStatements } from './tick-statements.js';

type CommonStatement = RowStatement | TickStatement | ScanStatement;

/** What differs between databases: the texts of these statements, with named parameters. */
export type CommonStatementTexts = Readonly<Record<CommonStatement, string>>;

export type CommonStatements = ReturnType<typeof createCommonStatements>;

/** The statements that every database runs in the same way. */
export const createCommonStatements = (run: RunStatement<CommonStatement>) => ({
  ...createRowStatements(run),
  ...createTickStatements(run),
  ...createScanStatements(run),
});
