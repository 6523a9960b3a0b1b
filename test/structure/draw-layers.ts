/** Prints the picture of `docs/architecture.md`: `node --import @swc-node/register/esm-register test/structure/draw-layers.ts`. */
import process from 'node:process';
import { drawLayers } from './layers.js';

process.stdout.write(drawLayers());
