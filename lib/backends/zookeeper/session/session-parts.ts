import type { Deadline } from '../../../core/requests/deadline.js';
import type { ConnectionSettings } from '../wire/connection-types.js';
import type { Hosts } from './hosts.js';

/** What a session needs of its backend. */
export interface SessionParts {
  readonly hosts: Hosts;
  readonly settings: ConnectionSettings;
  readonly sessionTimeoutMs: number;
  readonly tickTimeMs: number;
  /** A node that exists once the session is prepared. */
  readonly root: string;
  /** Creates what all requests need, over a connection that was just opened. */
  readonly prepare: (deadline: Deadline) => Promise<void>;
  readonly onNotice: (path: string) => void;
  /** The session goes on over another connection. */
  readonly onContinued: () => void;
  /** The connection was lost, with its watches, or the session is over. */
  readonly onLost: () => void;
  /** Locks are held or waited for, so the session must go on. */
  readonly isInUse: () => boolean;
}
