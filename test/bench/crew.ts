import { fileURLToPath } from 'node:url';
import { execaNode } from 'execa';
import type { BenchName } from './bench.js';
import type { Setting, StoreName } from './contender.js';
import { pin } from './pin.js';
import { times } from './statistics.js';

/** What a worker is told on its command line. */
export interface Task {
  readonly bench: BenchName;
  readonly contender: string;
  readonly store: StoreName;
  readonly setting: Setting;
}

/** What a worker answers; the first answer says that it is ready. */
export interface Answer<Told> {
  readonly told?: Told;
  readonly failure?: string;
  /** Errors that the contender threw where nobody could catch them. */
  readonly strays: readonly string[];
}

const workerFile = fileURLToPath(new URL('worker.ts', import.meta.url));
const READY_LIMIT_MS = 60_000;
const CLOSE_LIMIT_MS = 5_000;

type WorkerProcess = ReturnType<typeof start>;

/** The processes of one contender. */
export class Crew<Asked, Told> {
  readonly #workers: readonly WorkerProcess[];
  readonly #limitMs: number;
  readonly strays = new Set<string>();
  readonly task: Task;

  private constructor(workers: readonly WorkerProcess[], task: Task, limitMs: number) {
    this.#workers = workers;
    this.#limitMs = limitMs;
    this.task = task;
  }

  static async open<Asked, Told>(
    task: Task,
    { processes, limitMs, core }: { processes: number; limitMs: number; core?: number | undefined },
  ): Promise<Crew<Asked, Told>> {
    const workers = times(processes, () => start(task));
    const crew = new Crew<Asked, Told>(workers, task, limitMs);
    try {
      // Messages that nobody listens for are lost, so this comes first.
      const ready = workers.map((worker) => crew.#answer(worker, READY_LIMIT_MS));
      const pinned = core === undefined ? [] : workers.map(({ pid }) => pin(pid, `${core}`));
      await Promise.all([...ready, ...pinned]);
      return crew;
    } catch (error) {
      await crew.close();
      throw error;
    }
  }

  async ask(index: number, asked: Asked): Promise<Told> {
    const worker = this.#workers[index]!;
    const [told] = await Promise.all([this.#answer(worker, this.#limitMs), worker.sendMessage({ asked })]);
    return told as Told;
  }

  askAll(asked: Asked): Promise<Told[]> {
    return Promise.all(this.#workers.map((_, index) => this.ask(index, asked)));
  }

  /** A worker that has work left which does not end is killed. */
  async close(): Promise<void> {
    for (const worker of this.#workers) void sayGoodbye(worker);
    const killing = setTimeout(
      () => this.#workers.forEach((worker) => worker.kill('SIGKILL')),
      CLOSE_LIMIT_MS,
    );
    await Promise.all(this.#workers);
    clearTimeout(killing);
  }

  async #answer(worker: WorkerProcess, limitMs: number): Promise<Told | undefined> {
    let isLate = false as boolean;
    const killing = setTimeout(() => {
      isLate = true;
      worker.kill('SIGKILL');
    }, limitMs);
    try {
      const { told, failure, strays } = (await worker.getOneMessage()) as unknown as Answer<Told>;
      for (const stray of strays) this.strays.add(stray);
      if (failure !== undefined) throw new Error(failure);
      return told;
    } catch (cause) {
      if (isLate) throw new Error(`no answer within ${limitMs} ms`, { cause });
      throw cause;
    } finally {
      clearTimeout(killing);
    }
  }
}

/** Who has gone already cannot be told. */
async function sayGoodbye(worker: WorkerProcess): Promise<void> {
  try {
    await worker.sendMessage({});
  } catch {
    // It throws at once where the process has ended, and rejects where it ends meanwhile.
  }
}

function start(task: Task) {
  return execaNode(workerFile, [JSON.stringify(task)], {
    nodeOptions: [
      ...['--import', '@swc-node/register/esm-register', '--no-warnings'],
      ...['--expose-gc', '--max-old-space-size=4096'],
    ],
    ipc: true,
    buffer: false,
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'inherit',
    reject: false,
  });
}
