import type { QueryRunner } from 'typeorm';

/** Runs the action right before the first statement of the query runner that begins with this word. */
export function beforeStatement(runner: QueryRunner, word: string, action: () => Promise<unknown>): void {
  const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
  let isOver = false;
  runner.query = async (...args: [statement: string, ...rest: unknown[]]): Promise<never> => {
    if (!isOver && args[0].startsWith(word)) {
      isOver = true;
      await action();
    }
    return (await query(...args)) as never;
  };
}
