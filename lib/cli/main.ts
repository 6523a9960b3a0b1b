#!/usr/bin/env node
import 'reflect-metadata';
import { runCli } from './run-cli.js';

process.exitCode = await runCli(process.argv.slice(2), {
  print: (text) => console.log(text),
  warn: (text) => console.error(text),
});
