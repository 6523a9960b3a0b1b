/** One process of one contender: opens it, then answers what the bench asks until it is told to close. */
import { getEachMessage, sendMessage } from 'execa';
import type { Case } from './bench.js';
import { benches } from './benches.js';
import { contenderNamed } from './contenders.js';
import type { Answer, Task } from './crew.js';

const CLOSE_LIMIT_MS = 2_000;

const { bench: benchName, contender: name, store, setting } = JSON.parse(process.argv[2]!) as Task;
const bench = benches.find((one) => one.name === benchName)!;
const contender = contenderNamed(name, store);

const strays = new Set<string>();
const stray = (error: unknown) => strays.add(textOf(error));
process.on('unhandledRejection', stray).on('uncaughtException', stray);

const tell = (answer: Omit<Answer<unknown>, 'strays'>) => sendMessage({ ...answer, strays: [...strays] });

const session = await contender.open(setting).catch(async (error: unknown) => {
  await tell({ failure: textOf(error) });
  process.exit();
});
const work = bench.work(session, { contender, setting });
const messages = getEachMessage();
await tell({});
for await (const message of messages) {
  const { asked } = message as { readonly asked?: Case };
  if (asked === undefined) break;
  await work(asked).then(
    (told) => tell({ told }),
    (error: unknown) => tell({ failure: textOf(error) }),
  );
}
setTimeout(() => process.exit(), CLOSE_LIMIT_MS);
await session.close();
process.exit();

function textOf(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}`.slice(0, 200) : String(error);
}
