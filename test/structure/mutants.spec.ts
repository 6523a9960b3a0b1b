import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parseSync } from '@swc/core';
import { controls } from '../faults/chaos/controls.js';
import { mutants } from '../mutants/mutants.js';
import { ROOT } from './sources.js';

const faults = [...mutants, ...controls];

it.each(faults)('the code that a mutant changes is there: $title', ({ file, find }) => {
  expect(readFileSync(join(ROOT, file), 'utf8').split(find)).toHaveLength(2);
});

it.each(faults)('the changed code can be read: $title', ({ file, find, replace }) => {
  const code = readFileSync(join(ROOT, file), 'utf8').replace(find, () => replace);
  expect(() => parseSync(code, { syntax: 'typescript', decorators: true })).not.toThrow();
});
