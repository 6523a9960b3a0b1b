import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './free-port.js';
import { ServerHome, type ServerUser } from './server-home.js';
import type { Service, ServiceOptions } from './service.js';

/** What one kind of server needs to be started. */
interface ServerKind {
  readonly name: string;
  readonly file: string;
  readonly stopSignal: NodeJS.Signals;
  /** @default the user we are */
  readonly user?: ServerUser | undefined;
  url(port: number): string;
  args(place: { dataDir: string; port: number }): readonly string[];
  /** Fills a data folder that is not filled yet. */
  prepare(home: ServerHome): Promise<void>;
  /** Asks a real question; rejects as long as there is no answer. */
  ask(url: string): Promise<void>;
}

type ServerProcess = ReturnType<ServerHome['launch']>;

/** A loaded machine may be slow; a server that needs longer is broken. */
const startMs = 60_000;
const betweenQuestionsMs = 30;
/** MariaDB tells why it gives up well before its last line. */
const keptLogLines = 100;

/** Starts a server and waits until it answers; where it does not, nothing of it is left behind. */
export async function startServer(kind: ServerKind, options: ServiceOptions): Promise<Service> {
  const home = await ServerHome.open(kind, options.dataDir);
  try {
    await kind.prepare(home);
    return await launch(home, kind, options);
  } catch (error) {
    await home.close();
    throw error;
  }
}

async function launch(home: ServerHome, kind: ServerKind, options: ServiceOptions): Promise<Service> {
  const { name } = kind;
  const { dataDir } = home;
  const port = options.port ?? (await freePort());
  const url = kind.url(port);
  if ((await refusal(kind, url)) === undefined) {
    throw new Error(
      `expected port ${port} to be free for ${name}, but a server answers there already; stop it first`,
    );
  }

  const args = [...kind.args({ dataDir, port }), ...(options.args ?? [])];
  const server = home.launch(kind.file, args, options.env);
  const log = lastLines(server);
  const exited = server.then(() => undefined);
  const stop = async () => {
    server.kill();
    // A paused server cannot obey.
    server.kill('SIGCONT');
    await exited;
    await home.close();
  };

  try {
    const pid = await waitUntilAnswering(server, kind, url);
    void server.then((end) => reportIfBroken(kind, end, log));
    return { name, url, port, pid, dataDir, exited, stop, kill: (signal) => void server.kill(signal) };
  } catch (cause) {
    await stop();
    throw new Error(`${name} did not start on port ${port}; its last lines:\n${log.join('\n')}`, { cause });
  }
}

async function waitUntilAnswering(server: ServerProcess, kind: ServerKind, url: string): Promise<number> {
  if (server.pid === undefined)
    throw new Error(`${kind.file} could not be run`, { cause: (await server).cause });
  const deadline = performance.now() + startMs;
  for (;;) {
    const reason = await refusal(kind, url);
    if (server.exitCode !== null || server.signalCode !== null)
      throw new Error('it ended before it answered');
    if (reason === undefined) return server.pid;
    if (performance.now() > deadline) throw new Error(`no answer within ${startMs} ms`, { cause: reason });
    await sleep(betweenQuestionsMs);
  }
}

/** One that nobody ended: those who ask it next are refused, and nothing else would say why. */
function reportIfBroken(
  { name, stopSignal }: ServerKind,
  end: Awaited<ServerProcess>,
  log: readonly string[],
) {
  const { exitCode, signal } = end;
  if (exitCode === 0 || signal === 'SIGKILL' || signal === stopSignal) return;
  console.error(`${name} ended by itself (${signal ?? exitCode}); its last lines:\n${log.join('\n')}`);
}

/** Why there is no answer; undefined when there is one. */
function refusal(kind: ServerKind, url: string): Promise<unknown> {
  return kind.ask(url).catch((error: unknown) => error);
}

function lastLines(server: ServerProcess): readonly string[] {
  const lines: string[] = [];
  createInterface({ input: server.all }).on('line', (line) => {
    lines.push(line);
    if (lines.length > keptLogLines) lines.shift();
  });
  return lines;
}
