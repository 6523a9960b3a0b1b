import type { Session } from '../../connections/session.js';
import type { mysqlTexts } from './mysql-sql.js';

/** A statement that this version of the database does not know. */
export const SYNTAX_ERROR = '1064';

export interface Outcome {
  readonly affectedRows: number | string;
  readonly insertId: number | string;
}

/** Runs a statement for as many keys. Returns its rows, or an {@link Outcome}. */
export type RunStatement = (
  session: Session,
  name: keyof typeof mysqlTexts,
  keyCount: number,
  parameters: readonly unknown[],
) => Promise<unknown>;
