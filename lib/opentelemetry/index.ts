export { type InstrumentLocksOptions, instrumentLocks } from './instrument-locks.js';
