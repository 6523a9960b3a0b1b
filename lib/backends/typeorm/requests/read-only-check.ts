import type { Session } from '../connections/session.js';
import type { Statements } from '../dialects/dialect.js';

/** A renewal that no row matches. A server that accepts no writes rejects it too, although nothing would change. */
const UNHELD = { key: '', holder: '', leaseMs: 1 };

/** Rejects with the error of the server if it accepts no writes of this user. */
export async function checkWritable(statements: Statements, session: Session): Promise<void> {
  await statements.renew(session, [UNHELD]);
}
