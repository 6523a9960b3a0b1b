import { readFileSync } from 'node:fs';
import { until } from '../../support/until.js';
import type { Service } from '../../services/service.js';

/** Stops a server and all that it forked: PostgreSQL answers from child processes. Settles when they stand still. */
export async function freeze(server: Service): Promise<void> {
  for (const pid of signalFamily(server, 'SIGSTOP')) await until(() => isStopped(pid));
}

/** Lets it go on. */
export function thaw(server: Service): void {
  signalFamily(server, 'SIGCONT');
}

function signalFamily({ pid }: Service, signal: NodeJS.Signals): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
    .split(' ')
    .filter(Boolean)
    .map(Number);
  return [pid, ...children].filter((member) => wasSent(member, signal));
}

/** A child may have ended meanwhile. */
function wasSent(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

function isStopped(pid: number): boolean {
  try {
    return /T \(stopped\)|Z \(zombie\)/.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return true;
  }
}
