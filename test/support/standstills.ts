const LOOK_MS = 50;
/** Longer than a busy machine keeps a timer back. */
const SHORTEST_MS = 400;
/** A tick that is due so soon before or after a standstill may be late, or meet the late run of another tick. */
const MARGIN_MS = 1_500;

interface Standstill {
  readonly fromMs: number;
  readonly toMs: number;
}

export interface StandstillWatch {
  /** Whether the machine ran on around this moment, in UTC milliseconds. */
  wasRunningAt(ms: number): boolean;
  end(): void;
}

/**
 * Notices when the whole machine stood still, as virtual machines do at times. Nothing runs then, so a tick that is due meanwhile is
 * nobody's fault.
 */
export function watchForStandstills(): StandstillWatch {
  const standstills: Standstill[] = [];
  let lastMs = Date.now();
  const timer = setInterval(() => {
    const nowMs = Date.now();
    if (nowMs - lastMs > SHORTEST_MS) standstills.push({ fromMs: lastMs, toMs: nowMs });
    lastMs = nowMs;
  }, LOOK_MS);
  return {
    wasRunningAt: (ms) =>
      standstills.every(({ fromMs, toMs }) => ms < fromMs - MARGIN_MS || ms > toMs + MARGIN_MS),
    end: () => clearInterval(timer),
  };
}
