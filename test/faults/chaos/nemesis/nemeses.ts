import { applicationClosed } from './application-closed.js';
import { dateShifted } from './date-shifted.js';
import { loopBlocked } from './loop-blocked.js';
import type { Nemesis } from './nemesis.js';
import * as network from './network.js';
import { processKilled } from './process-killed.js';
import { processStopped } from './process-stopped.js';
import * as quorum from './quorum.js';
import * as clock from './store-clock.js';
import * as restarts from './store-restarted.js';
import * as sessions from './store-sessions.js';
import * as slowness from './store-slow.js';

/** All of them. */
export const nemeses: readonly Nemesis[] = [
  processKilled,
  processStopped,
  loopBlocked,
  applicationClosed,
  dateShifted,
  ...Object.values(network),
  ...Object.values(restarts),
  ...Object.values(quorum),
  ...Object.values(slowness),
  ...Object.values(clock),
  ...Object.values(sessions),
];
