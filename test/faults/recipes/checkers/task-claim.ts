import { NUDGE } from '../drivers/task-claim.js';
import type { CallRecord, ResultRecord } from '../history.js';
import { groupBy } from '../group-by.js';
import type { RecipeChecker, RoundEvidence } from './checker.js';

interface Task {
  readonly id: number;
  readonly state: 'WAITING' | 'RUNNING' | 'DONE';
  readonly progress: number;
}

const STEP = 50;

/** Each step of a task is taken once, and its progress is all that was added to it. */
export class TaskClaimChecker implements RecipeChecker {
  readonly isNeeded = () => false;

  check({ history: { calls, results }, contents }: RoundEvidence) {
    const tasks = contents as readonly Task[];
    const nudges = groupBy(calls, ({ details }) => details.nudged ?? 0);
    const rows = results.filter(({ id }) => id !== undefined);
    const perTask = groupBy(rows, ({ id }) => id!);
    const twice = [...perTask.values()].flatMap(stepsTakenTwice);
    const verdicts = tasks.map((task) =>
      wrongOf(task, nudges.get(task.id) ?? [], perTask.get(task.id) ?? []),
    );
    const errors = calls.filter(({ outcome }) => outcome !== undefined && outcome !== 'ok');
    return {
      effects: rows.length,
      lostUpdates: verdicts.filter((wrong) => wrong?.isLost).length,
      doubleEffects: verdicts.filter((wrong) => wrong && !wrong.isLost).length + twice.length,
      findings: [
        ...twice,
        ...verdicts.flatMap((wrong) => wrong?.sentence ?? []),
        ...errors.map(({ outcome, worker }) => `a call of worker ${worker} ended with ${outcome}`),
      ],
    };
  }
}

function stepsTakenTwice(results: readonly ResultRecord[]): string[] {
  return [...groupBy(results, ({ checkpoint }) => checkpoint)].flatMap(([checkpoint, same]) =>
    same.length > 1
      ? [
          `task ${same[0]!.id}: ${same.length} times by ${same.map(({ worker }) => worker).join()}: ${checkpoint}`,
        ]
      : [],
  );
}

function wrongOf(
  { id, state, progress }: Task,
  nudges: readonly CallRecord[],
  results: readonly ResultRecord[],
) {
  const sure = nudges.filter(({ outcome }) => outcome === 'ok').length;
  const perhaps = nudges.filter(({ outcome }) => outcome === undefined).length;
  const isSurelyStepped =
    state === 'DONE' || results.some(({ checkpoint }) => checkpoint.includes('optimisticUpdate'));
  const least = sure * NUDGE + (isSurelyStepped ? STEP : 0);
  const most = (sure + perhaps) * NUDGE + (state === 'WAITING' ? 0 : STEP);
  if (progress >= least && progress <= most) return undefined;
  const expected = least === most ? `${least}` : `${least} to ${most}`;
  return {
    isLost: progress < least,
    sentence: `task ${id} (${state}): expected progress ${expected}, got ${progress}`,
  };
}
