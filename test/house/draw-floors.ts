/** Prints the picture of `docs/architecture.md`: `node --import @swc-node/register/esm-register test/house/draw-floors.ts`. */
import process from 'node:process';
import { drawFloors } from './rooms.js';

process.stdout.write(drawFloors());
