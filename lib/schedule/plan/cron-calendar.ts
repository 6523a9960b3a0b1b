import { CronTime } from 'cron';
import { CronLocalTimes } from './cron-local-times.js';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const MAX_CACHED_OFFSETS = 64;

/**
 * The instants at which a `cron` job that was started long ago fires. Excluded are firings around a change of the clock at
 * local times that the expression does not name.
 *
 * The package itself cannot compute them: how it resolves a local time that occurs twice depends on the day of the
 * computation, and on whether the job was started in between. So the package only parses the expression, and this class
 * reproduces how it resolves local times.
 */
export class CronCalendar {
  readonly #localTimes: CronLocalTimes;
  readonly #localTime: LocalTime;

  constructor(cronTime: CronTime) {
    const zone = cronTime.timeZone ?? formatUtcZone(cronTime.utcOffset ?? 0);
    this.#localTimes = new CronLocalTimes(cronTime);
    this.#localTime = new LocalTime(new CronTime('* * * * * *').getNextDateFrom(new Date(), zone).zone);
  }

  /** The first tick after this instant; `undefined` if there is none, as for 30 February. */
  next(afterMs: number): number | undefined {
    if (this.#localTimes.isEmpty) return undefined;
    const changedMs = this.#localTime.findChangeBefore(afterMs);
    // Computed from after the change, a local time could be a tick twice, or the tick for the skipped hour could be missing.
    const firstMs = changedMs === undefined ? -Infinity : this.#nextFiring(changedMs - 1);
    return afterMs < firstMs ? firstMs : this.#nextFiring(afterMs);
  }

  /** The next firing of a job whose timer was set at this instant. */
  #nextFiring(afterMs: number): number {
    const localTime = this.#localTime;
    const localMs = this.#localTimes.next(localTime.toLocal(afterMs));
    const dueMs = localTime.toInstants(localMs).find((ms) => ms > afterMs);
    const firedMs =
      dueMs === undefined ? this.#firingAfterGap(localMs, afterMs) : this.#applyLookBack(dueMs, afterMs);
    const isForGap = dueMs === undefined && firedMs >= localTime.findForwardChange(localMs);
    // Around a change the package also fires at other times than the expression names: for 3:30 also at 2:30.
    return isForGap || this.#isPlanned(firedMs) ? firedMs : this.#nextFiring(firedMs);
  }

  /** Whether the expression names the local time of this instant. */
  #isPlanned(atMs: number): boolean {
    return this.#localTimes.matches(this.#localTime.toLocal(atMs));
  }

  /** When the package fires for a local time that does not exist, because clocks are set forward over it. */
  #firingAfterGap(localMs: number, afterMs: number): number {
    const localTime = this.#localTime;
    const gapEndMs = localTime.findForwardChange(localMs);
    const lateMs = localMs - localTime.offsetMs(gapEndMs - 1);
    const newYear = new Date(localTime.toLocal(lateMs)).getUTCFullYear();
    const winterOffsetMs = localTime.offsetMs(localTime.toInstants(Date.UTC(newYear, 0, 1))[0] ?? 0);
    if (winterOffsetMs !== localTime.offsetMs(lateMs)) return gapEndMs + ((lateMs - gapEndMs) % MINUTE_MS);
    return this.#applyLookBack(lateMs, afterMs);
  }

  /** After clocks were set back, the package may fire an hour or half an hour earlier, whatever the expression says. */
  #applyLookBack(dueMs: number, afterMs: number): number {
    const isSame = (unitMs: number, one: number, other: number) =>
      this.#readField(unitMs, one) === this.#readField(unitMs, other);
    const hourMs = dueMs - HOUR_MS;
    let atMs = dueMs;
    if (hourMs > afterMs && (isSame(HOUR_MS, hourMs, dueMs) || isSame(HOUR_MS, hourMs - HOUR_MS, hourMs)))
      atMs = hourMs;
    const halfMs = atMs - HOUR_MS / 2;
    if (halfMs > afterMs && (isSame(MINUTE_MS, halfMs, atMs) || isSame(MINUTE_MS, hourMs, halfMs)))
      atMs = halfMs;
    return atMs;
  }

  /** The hour or the minute of the local time. */
  #readField(unitMs: number, atMs: number): number {
    return Math.floor(this.#localTime.toLocal(atMs) / unitMs) % (unitMs === HOUR_MS ? 24 : 60);
  }
}

function formatUtcZone(offsetMinutes: number): string {
  const sign = offsetMinutes < 0 ? '-' : '+';
  const [hours, minutes] = [Math.trunc(Math.abs(offsetMinutes) / 60), Math.abs(offsetMinutes) % 60];
  return `UTC${sign}${String(hours).padStart(2, '0')}:${String(minutes).padStart(2, '0')}`;
}

/** Minutes by which local time is ahead of UTC at an instant. */
interface Zone {
  offset(atMs: number): number;
}

/** The local time of a zone, written as the instant at which a UTC clock shows the same. */
class LocalTime {
  readonly #zone: Zone;
  /** A cache: a zone computes its offset in microseconds, and the same instants are needed again and again. */
  readonly #offsetsMs = new Map<number, number>();

  constructor(zone: Zone) {
    this.#zone = zone;
  }

  offsetMs(atMs: number): number {
    const known = this.#offsetsMs.get(atMs);
    if (known !== undefined) return known;
    if (this.#offsetsMs.size >= MAX_CACHED_OFFSETS) this.#offsetsMs.clear();
    const offsetMs = this.#zone.offset(atMs) * MINUTE_MS;
    this.#offsetsMs.set(atMs, offsetMs);
    return offsetMs;
  }

  /** The local time at this instant. */
  toLocal(atMs: number): number {
    return atMs + this.offsetMs(atMs);
  }

  /** The instants with this local time: two if clocks are set back over it, none if they are set forward over it. */
  toInstants(localMs: number): readonly number[] {
    const offsets = [this.offsetMs(localMs - DAY_MS), this.offsetMs(localMs + DAY_MS)];
    const found = new Set(offsets.map((offsetMs) => localMs - offsetMs));
    return [...found].filter((atMs) => this.toLocal(atMs) === localMs).sort((one, other) => one - other);
  }

  /** The last change of the offset, forward or back, if it is no longer ago than the amount of the change. */
  findChangeBefore(atMs: number): number | undefined {
    const sinceMs = atMs - Math.abs(this.offsetMs(atMs) - this.offsetMs(atMs - DAY_MS));
    return this.offsetMs(sinceMs) === this.offsetMs(atMs)
      ? undefined
      : this.#findChangeBetween(sinceMs, atMs);
  }

  /** The instant at which clocks were set forward over this local time, which therefore does not exist. */
  findForwardChange(localMs: number): number {
    return this.#findChangeBetween(localMs - DAY_MS, localMs + DAY_MS);
  }

  #findChangeBetween(fromMs: number, toMs: number): number {
    const before = this.offsetMs(fromMs);
    let [from, to] = [Math.floor(fromMs / SECOND_MS), Math.floor(toMs / SECOND_MS)];
    while (to - from > 1) {
      const middle = Math.floor((from + to) / 2);
      if (this.offsetMs(middle * SECOND_MS) === before) from = middle;
      else to = middle;
    }
    return to * SECOND_MS;
  }
}
