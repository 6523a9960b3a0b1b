/** One process of one contender: opens it, then answers what the bench asks until it is told to close. */
import { getEachMessage, sendMessage } from 'execa';
import type { Case } from './bench.js';
import { benches } from './benches.js';
import { contenderNamed } from './contenders.js';
import type { WorkerAnswer, Task } from './worker-pool.js';

const CLOSE_LIMIT_MS = 2_000;

const { bench: benchName, contender: name, store, setting } = JSON.parse(process.argv[2]!) as Task;
const bench = benches.find((one) => one.name === benchName)!;
const contender = contenderNamed(name, store);

const uncaughtErrors = new Set<string>();
const recordUncaught = (error: unknown) => uncaughtErrors.add(textOf(error));
process.on('unhandledRejection', recordUncaught).on('uncaughtException', recordUncaught);

const sendAnswer = (answer: Omit<WorkerAnswer<unknown>, 'uncaughtErrors'>) =>
  sendMessage({ ...answer, uncaughtErrors: [...uncaughtErrors] });

const session = await contender.open(setting).catch(async (error: unknown) => {
  await sendAnswer({ failure: textOf(error) });
  process.exit();
});
const work = bench.work(session, { contender, setting });
const messages = getEachMessage();
await sendAnswer({});
for await (const message of messages) {
  const { request } = message as { readonly request?: Case };
  if (request === undefined) break;
  await work(request).then(
    (reply) => sendAnswer({ reply }),
    (error: unknown) => sendAnswer({ failure: textOf(error) }),
  );
}
setTimeout(() => process.exit(), CLOSE_LIMIT_MS);
await session.close();
process.exit();

function textOf(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}`.slice(0, 200) : String(error);
}
