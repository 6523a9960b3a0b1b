import { fileURLToPath } from 'node:url';
import { execaNode } from 'execa';
import { expect, it } from 'vitest';

const script = fileURLToPath(new URL('one-shot.ts', import.meta.url));
const nodeOptions = ['--import', '@swc-node/register/esm-register', '--no-warnings'];

it.each([
  ['call', ['ran', 'ended']],
  ['runNow', ['LockUnavailableError', 'ended']],
])(
  'a script that waits for a job does not end before it: %s',
  async (how, lines) => {
    const { stdout } = await execaNode(script, [how], { nodeOptions });
    expect(stdout.split('\n')).toEqual(lines);
  },
  60_000,
);
