import { type DiscoveryService, MetadataScanner } from '@nestjs/core';
import type { Method } from '../../decorators/decorated-method.js';
import type { CronSchedule } from '../plan/plan.js';
import { MethodTimers, type Orchestrator, type TimerKind, declaredSchedule } from './method-timers.js';

/** The metadata keys of the decorators of `@nestjs/schedule`. The package does not export them; the same since version 1. */
const CRON = 'SCHEDULE_CRON_OPTIONS';
const INTERVAL = 'SCHEDULE_INTERVAL_OPTIONS';
const TIMEOUT = 'SCHEDULE_TIMEOUT_OPTIONS';
const NAME = 'SCHEDULER_NAME';
const TYPE = 'SCHEDULER_TYPE';

/** The kinds of timers by their number in the metadata of `@nestjs/schedule`. */
const KINDS: readonly (TimerKind | undefined)[] = [undefined, 'cronJobs', 'timeouts', 'intervals'];

/** The metadata that the decorators of `@nestjs/schedule` have stored on a method. */
export type MethodSchedule = ReturnType<typeof readSchedule>;

interface TimerMetadata {
  readonly timeout: number;
}

export const readSchedule = (method: Method) => ({
  cron: Reflect.getMetadata(CRON, method) as (CronSchedule & { readonly disabled?: boolean }) | undefined,
  interval: Reflect.getMetadata(INTERVAL, method) as TimerMetadata | undefined,
  timeout: Reflect.getMetadata(TIMEOUT, method) as TimerMetadata | undefined,
  name: Reflect.getMetadata(NAME, method) as string | undefined,
});

export function isScheduled(method: Method): boolean {
  const { cron, interval, timeout } = readSchedule(method);
  return (cron ?? interval ?? timeout) !== undefined;
}

/** A method that `@nestjs/schedule` fires. */
interface ScheduledMethod {
  readonly instance: object;
  readonly method: string;
  readonly kind: TimerKind;
  /** The name of its timer; `undefined` if `@nestjs/schedule` gives it a random one. */
  readonly timerName: string | undefined;
  /** What methods without a timer name may share: the options of a cron job, or the milliseconds. */
  readonly schedule: unknown;
}

/** Finds the timers that `@nestjs/schedule` has for methods. Use it when the scheduler has explored the application. */
export class NestScheduler {
  readonly #orchestrators: readonly Orchestrator[];
  readonly #methods: readonly ScheduledMethod[];

  constructor(discovery: DiscoveryService) {
    const providers = discovery.getProviders().map(({ instance }) => instance as unknown);
    this.#orchestrators = providers.filter(isOrchestrator);
    this.#methods = this.#orchestrators.length === 0 ? [] : [...findScheduledMethods(discovery)];
  }

  /** Whether a `ScheduleModule` is imported, of any copy of `@nestjs/schedule`. */
  get exists(): boolean {
    return this.#orchestrators.length > 0;
  }

  timersOf(instance: object, method: string): MethodTimers {
    const own = this.#methods.filter((each) => each.instance === instance && each.method === method);
    const kind = own[0]?.kind ?? 'cronJobs';
    const timers = this.#orchestrators.flatMap((orchestrator) =>
      own.flatMap((each) => this.#findNames(orchestrator, each)).map((name) => ({ orchestrator, name })),
    );
    return new MethodTimers(kind, timers);
  }

  /**
   * The names of timers that belong to a method. Timers with random names and one schedule, as of subclasses that inherit a
   * method, can be distinguished by their order only.
   */
  #findNames(orchestrator: Orchestrator, scheduled: ScheduledMethod): readonly string[] {
    const { kind, timerName, schedule } = scheduled;
    if (timerName !== undefined) return [timerName];
    const ofKind = this.#methods.filter((each) => each.kind === kind);
    const givenNames = new Set(ofKind.map((each) => each.timerName));
    const sharers = ofKind.filter((each) => each.timerName === undefined && each.schedule === schedule);
    const names = Object.keys(orchestrator[kind]).filter(
      (name) => !givenNames.has(name) && declaredSchedule(orchestrator, kind, name) === schedule,
    );
    // They differ if a module was loaded lazily: nothing fires its methods. Then all timers of the schedule are returned.
    if (names.length !== sharers.length) return names;
    return names.slice(sharers.indexOf(scheduled)).slice(0, 1);
  }
}

const isOrchestrator = (value: unknown): value is Orchestrator =>
  typeof value === 'object' &&
  value !== null &&
  ['schedulerRegistry', 'cronJobs', 'intervals', 'timeouts'].every((name) => name in value);

/** Finds methods in the same order as `@nestjs/schedule`, the same in versions 6 to 12: an instance may occur twice. */
function* findScheduledMethods(discovery: DiscoveryService): Generator<ScheduledMethod> {
  const scanner = new MetadataScanner();
  for (const wrapper of [...discovery.getControllers(), ...discovery.getProviders()]) {
    const instance = wrapper.instance as Readonly<Record<string, unknown>> | undefined;
    if (!instance || !wrapper.isDependencyTreeStatic()) continue;
    for (const method of scanner.getAllMethodNames(Object.getPrototypeOf(instance) as object | null)) {
      const scheduled = describe(instance[method]);
      if (scheduled) yield { instance, method, ...scheduled };
    }
  }
}

function describe(method: unknown): Pick<ScheduledMethod, 'kind' | 'timerName' | 'schedule'> | undefined {
  if (typeof method !== 'function') return undefined;
  const kind = KINDS[Reflect.getMetadata(TYPE, method) as number];
  if (!kind) return undefined;
  const { cron, interval, timeout, name } = readSchedule(method as Method);
  // An empty name of a cron job is replaced by a random one.
  if (kind === 'cronJobs') return { kind, timerName: name || undefined, schedule: cron };
  return { kind, timerName: name, schedule: (kind === 'intervals' ? interval : timeout)?.timeout };
}
