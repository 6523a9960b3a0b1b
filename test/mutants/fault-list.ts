import type { CodeMutation } from '../support/compiled-code.js';

/** A fault put into our own code. */
export interface Fault extends CodeMutation {
  readonly title: string;
}

/** Faults, and what must detect them. */
export interface FaultList<Each extends Fault> {
  readonly faults: readonly Each[];
  /** How many are tried at the same time, each in a copy of the code of its own. */
  readonly lanes: number;
  /** Opens what detects the faults of one lane. `chosen` are those of all lanes. */
  open(chosen: readonly Each[]): Promise<Detector<Each>>;
}

interface Detector<Each extends Fault> {
  detect(fault: Each): Promise<{ readonly isDetected: boolean; readonly text: string }>;
  /** Returns what else was wrong. */
  close(): Promise<readonly string[]>;
}
