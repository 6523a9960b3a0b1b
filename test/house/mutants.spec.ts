import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { controls } from '../chaos/controls.js';
import { mutants } from '../mutants/mutants.js';
import { ROOT } from './sources.js';

it.each([...mutants, ...controls])('the code that a mutant changes is there: $title', ({ file, find }) => {
  expect(readFileSync(join(ROOT, file), 'utf8').split(find)).toHaveLength(2);
});
