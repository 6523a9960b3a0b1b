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
export interface WorkerAnswer<Reply> {
  readonly reply?: Reply;
  readonly failure?: string;
  /** Errors that the contender threw where nobody could catch them. */
  readonly uncaughtErrors: readonly string[];
}

const workerFile = fileURLToPath(new URL('worker.ts', import.meta.url));
const READY_TIMEOUT_MS = 60_000;
const CLOSE_TIMEOUT_MS = 5_000;

type WorkerProcess = ReturnType<typeof start>;

/** The processes of one contender. */
export class WorkerPool<Request, Reply> {
  readonly #workers: readonly WorkerProcess[];
  readonly #timeoutMs: number;
  readonly uncaughtErrors = new Set<string>();
  readonly task: Task;

  private constructor(workers: readonly WorkerProcess[], task: Task, timeoutMs: number) {
    this.#workers = workers;
    this.#timeoutMs = timeoutMs;
    this.task = task;
  }

  static async open<Request, Reply>(
    task: Task,
    { processes, timeoutMs, core }: { processes: number; timeoutMs: number; core?: number | undefined },
  ): Promise<WorkerPool<Request, Reply>> {
    const workers = times(processes, () => start(task));
    const pool = new WorkerPool<Request, Reply>(workers, task, timeoutMs);
    try {
      // Messages that nobody listens for are lost, so this comes first.
      const ready = workers.map((worker) => pool.#receive(worker, READY_TIMEOUT_MS));
      const pinned = core === undefined ? [] : workers.map(({ pid }) => pin(pid, `${core}`));
      await Promise.all([...ready, ...pinned]);
      return pool;
    } catch (error) {
      await pool.close();
      throw error;
    }
  }

  async ask(index: number, request: Request): Promise<Reply> {
    const worker = this.#workers[index]!;
    const [reply] = await Promise.all([
      this.#receive(worker, this.#timeoutMs),
      worker.sendMessage({ request }),
    ]);
    return reply as Reply;
  }

  askAll(request: Request): Promise<Reply[]> {
    return Promise.all(this.#workers.map((_, index) => this.ask(index, request)));
  }

  /** A worker that has work left which does not end is killed. */
  async close(): Promise<void> {
    for (const worker of this.#workers) void requestClose(worker);
    const killing = setTimeout(
      () => this.#workers.forEach((worker) => worker.kill('SIGKILL')),
      CLOSE_TIMEOUT_MS,
    );
    await Promise.all(this.#workers);
    clearTimeout(killing);
  }

  async #receive(worker: WorkerProcess, timeoutMs: number): Promise<Reply | undefined> {
    let isLate = false as boolean;
    const killing = setTimeout(() => {
      isLate = true;
      worker.kill('SIGKILL');
    }, timeoutMs);
    try {
      const { reply, failure, uncaughtErrors } =
        (await worker.getOneMessage()) as unknown as WorkerAnswer<Reply>;
      for (const error of uncaughtErrors) this.uncaughtErrors.add(error);
      if (failure !== undefined) throw new Error(failure);
      return reply;
    } catch (cause) {
      if (isLate) throw new Error(`no answer within ${timeoutMs} ms`, { cause });
      throw cause;
    } finally {
      clearTimeout(killing);
    }
  }
}

/** Who has gone already cannot be told. */
async function requestClose(worker: WorkerProcess): Promise<void> {
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
