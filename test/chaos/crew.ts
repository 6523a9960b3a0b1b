import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Worker, startProcess } from '../cluster/start-worker.js';
import { machineMs } from '../machine-ms.js';
import type { Stop } from './checkers/waits.js';
import { type Life, linesOf } from './history.js';
import { Proxy } from './proxy.js';
import type { Random } from '../random.js';
import type { News, Order, Task } from './task.js';
import { until } from '../until.js';
import type { World } from './worlds/world.js';

interface CrewParts {
  readonly world: World;
  readonly random: Random;
  /** Where the compiled code is. */
  readonly code: string;
  /** Where the workers write. */
  readonly folder: string;
  readonly namespace: string;
  readonly resourcePort: number;
  readonly size: number;
  readonly callers: number;
  readonly keys: number;
}

/** A process that wants locks. */
interface Member {
  readonly name: string;
  readonly diary: string;
  readonly worker: Worker<News>;
  killedAtMs?: number;
  closedAtMs?: number;
  hasEnded: boolean;
}

/** Where one process works, and after its end the next one, with a network of its own. */
export interface Seat {
  readonly number: number;
  readonly networks: readonly Proxy[];
  member: Member;
}

/** Processes that have started and wait for a seat. */
const SPARES = 2;
/** An application gets so long to close. */
const CLOSE_MS = 30_000;

/** The processes that want locks, always as many. */
export class Crew {
  readonly stops: Stop[] = [];
  /** Processes that ended although nobody wanted it, or did not although they should. */
  readonly crashes: string[] = [];
  /** What closed applications left in their process. */
  readonly left: string[] = [];
  readonly seats: Seat[] = [];
  readonly #parts: CrewParts;
  readonly #members: Member[] = [];
  readonly #closings = new Set<Promise<void>>();
  readonly #spares: Worker<News>[];
  #isEnding = false;

  private constructor(parts: CrewParts) {
    this.#parts = parts;
    this.#spares = Array.from({ length: SPARES }, () => this.#start());
  }

  static async start(parts: CrewParts): Promise<Crew> {
    const crew = new Crew(parts);
    for (let number = 1; number <= parts.size; number += 1) {
      const ports = parts.world.servers.map(({ service }) => service.port);
      const networks = await Promise.all(ports.map((port) => Proxy.to(port)));
      const seat = { number, networks } as unknown as Seat;
      seat.member = crew.#seatNext(seat);
      crew.seats.push(seat);
    }
    return crew;
  }

  get lives(): Life[] {
    return this.#members.map(({ name, diary, killedAtMs, closedAtMs }) => ({
      worker: name,
      killedAtMs,
      closedAtMs,
      lines: linesOf(diary),
    }));
  }

  /** All processes have begun to work, or will not. */
  get isWorking(): boolean {
    return this.seats.every(({ member }) => hasBegun(member));
  }

  /** Kills the process, and lets another one take its seat. */
  async kill(seat: Seat): Promise<void> {
    const { member } = seat;
    member.killedAtMs = machineMs();
    member.hasEnded = true;
    seat.member = this.#seatNext(seat);
    member.worker.process.kill('SIGKILL');
    await member.worker.ended;
  }

  /** Closes the application, while another one takes its seat. */
  replace(seat: Seat): void {
    const { member } = seat;
    member.closedAtMs = machineMs();
    seat.member = this.#seatNext(seat);
    const closing = this.#close(member).finally(() => this.#closings.delete(closing));
    this.#closings.add(closing);
  }

  async stop({ member }: Seat, forMs: number): Promise<void> {
    const fromMs = machineMs();
    member.worker.process.kill('SIGSTOP');
    await sleep(forMs);
    member.worker.process.kill('SIGCONT');
    this.stops.push({ worker: member.name, fromMs, toMs: machineMs() });
  }

  async block({ member }: Seat, forMs: number): Promise<void> {
    const fromMs = machineMs();
    order(member, { order: 'block', forMs });
    await sleep(forMs);
    // When it begins is not known so exactly.
    this.stops.push({ worker: member.name, fromMs, toMs: machineMs() + forMs });
  }

  shiftDate({ member }: Seat, byMs: number): void {
    order(member, { order: 'shift-date', byMs });
  }

  /** Lets all applications close. */
  async end(): Promise<void> {
    this.#isEnding = true;
    await Promise.all([...this.#closings, ...this.seats.map(({ member }) => this.#close(member))]);
  }

  /** Ends what is left of it. */
  async clear(): Promise<void> {
    this.#isEnding = true;
    for (const worker of [...this.#spares, ...this.#members.map(({ worker }) => worker)]) {
      worker.process.kill('SIGKILL');
      await worker.ended;
    }
    await Promise.all(this.seats.flatMap(({ networks }) => networks.map((network) => network.close())));
  }

  #start(): Worker<News> {
    return startProcess<News>(join(this.#parts.code, 'test/chaos/worker.js'));
  }

  /** Processes are started before they are needed. */
  #seatNext(seat: Seat): Member {
    const { number, networks } = seat;
    const { world, namespace, resourcePort, callers, keys, folder, random } = this.#parts;
    this.#spares.push(this.#start());
    const worker = this.#spares.shift()!;
    const name = `${number}.${this.#members.length + 1}`;
    const member: Member = { name, diary: join(folder, `${name}.jsonl`), worker, hasEnded: false };
    const store = world.storeAt(networks.map(({ port }) => port));
    const task: Task = {
      ...{ name, store, namespace, resourcePort, callers, keys },
      seed: random.seed(),
      diary: member.diary,
    };
    // It is read also if its process is killed before it opened it.
    writeFileSync(member.diary, '');
    order(member, { order: 'begin', task });
    void worker.ended.then((how) => {
      if (member.hasEnded || this.#isEnding) return;
      this.crashes.push(`${name} ended with ${how}`);
      member.hasEnded = true;
      seat.member = this.#seatNext(seat);
    });
    this.#members.push(member);
    return member;
  }

  async #close(member: Member): Promise<void> {
    const { name, worker } = member;
    member.hasEnded = true;
    order(member, { order: 'end' });
    const timeIsOver = new AbortController();
    const inTime = await Promise.race([
      worker.ended,
      timeToClose(member, timeIsOver.signal).catch(() => undefined),
    ]);
    timeIsOver.abort();
    const [closed] = worker.messages.flatMap((news) => (news.news === 'closed' ? news : []));
    if (closed) this.left.push(...closed.left.map((what) => `${name}: ${what}`));
    if (inTime === 0) return;
    if (inTime !== undefined) this.crashes.push(`${name} ended with ${inTime} when it closed`);
    else {
      this.left.push(`${name}: ${closed ? 'closed, and the process went on' : 'did not close'}`);
      member.killedAtMs = machineMs();
      worker.process.kill('SIGKILL');
      await worker.ended;
    }
  }
}

/** It works, or will not. */
const hasBegun = ({ worker }: Member) => worker.messages.length > 0 || !worker.process.connected;

/** A process that has not begun yet cannot close, and an overloaded machine may take half a minute to start it. */
async function timeToClose(member: Member, signal: AbortSignal): Promise<undefined> {
  await until(() => hasBegun(member));
  await sleep(CLOSE_MS, undefined, { signal });
}

function order({ worker }: Member, told: Order): void {
  // One that was killed a moment ago hears nothing.
  if (worker.process.connected) worker.process.send(told, () => undefined);
}
