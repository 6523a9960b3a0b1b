import type { Bench } from './bench.js';
import { b1 } from './benches/b1-alone.js';
import { b2 } from './benches/b2-own-keys.js';
import { b3 } from './benches/b3-crowd.js';
import { b4 } from './benches/b4-processes.js';
import { b5 } from './benches/b5-handoff.js';
import { b6 } from './benches/b6-renewals.js';
import { b7 } from './benches/b7-quorum.js';
import { b8 } from './benches/b8-memory.js';
import { b9 } from './benches/b9-growth.js';
import { b10 } from './benches/b10-wrappers.js';
import { b11 } from './benches/b11-permits.js';
import { b12 } from './benches/b12-kinds.js';
import { b13 } from './benches/b13-list.js';
import { b14 } from './benches/b14-consensus.js';

/** What each bench asks of its workers is known to itself alone. */
export const benches = [
  b1,
  b2,
  b3,
  b4,
  b5,
  b6,
  b7,
  b8,
  b9,
  b10,
  b11,
  b12,
  b13,
  b14,
] as unknown as readonly Bench[];
