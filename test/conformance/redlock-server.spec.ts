import { randomUUID } from 'node:crypto';
import { afterAll, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import {
  type Ballot,
  NO_BALLOT,
  ServerCall,
  fixedWidth,
} from '../../lib/backends/redis/quorum/server-call.js';
import { startRedis } from '../services/redis-server.js';
import { serviceUrl } from '../support/environment.js';

/** One server of a quorum, asked in an order that a network may bring about. */
const redis = new Redis(serviceUrl('TEST_REDIS_URL'));
afterAll(() => redis.quit());

const terms = { leaseMs: 10_000, memoryMs: 70_000, retryWithinMs: 0, tokenCount: 1, instance: 'spec' };
const MEMORY = `${terms.leaseMs} ${terms.memoryMs}`;
const COPY = `copy ${terms.memoryMs}`;

async function ask(
  request: ConstructorParameters<typeof ServerCall>[0][0],
  ballot: Ballot = NO_BALLOT,
  { client = redis, notAfterUs = Infinity } = {},
) {
  const call = new ServerCall([request], ballot);
  const { replies: answers } = await call.run(client, {
    notAfterUs,
    ballotToleranceUs: 60_000_000,
    channel: 'spec',
  });
  return answers[0] ?? '';
}

/** Ballots of one question: the first one, and a larger one. */
async function question() {
  const [seconds] = await redis.time();
  const firstUs = Number(seconds) * 1e6;
  return {
    first: { us: firstUs, firstUs, isRaised: false },
    second: { us: firstUs + 1, firstUs, isRaised: true },
  };
}

const pauseCommand = (
  kind: 'P' | 'R',
  version: number,
  { keepsTick = false, nowMs = Date.now() }: { keepsTick?: boolean; nowMs?: number } = {},
) => `pause ${kind}${fixedWidth(version)} ${keepsTick ? 1 : 0} ${fixedWidth(nowMs * 1_000)}`;

it('a vote of a later round is not withdrawn by a release of an earlier round', async () => {
  const claim = { key: randomUUID(), holder: randomUUID() };
  const { first, second } = await question();
  expect(await ask({ ...claim, command: terms }, first)).toMatch(/^granted/);
  expect(await ask({ ...claim, command: terms }, second)).toMatch(/^granted/);
  const yieldTo = (us: number) =>
    ask({ ...claim, command: `yield ${fixedWidth(first.us)} ${fixedWidth(us)} 0` });
  expect(await yieldTo(first.us)).toBe('gone');
  expect(await ask({ ...claim, command: `renew ${MEMORY}` })).toBe('renewed');
  expect(await yieldTo(second.us)).toBe('released');
});

it('a repaired server keeps the newer tick that it has', async () => {
  const { first, second } = await question();
  const [key, other] = [randomUUID(), randomUUID()];
  const holder = randomUUID();
  const tick = `${'1'.repeat(13)}001`;
  await ask({ key, holder, command: terms }, first);
  await ask({ key, holder, command: `mark ${tick} 70000 -` });
  await ask({ key, holder, command: 'release' });
  await ask({ key: other, holder, command: terms }, second);
  const lock = await ask({ key: other, holder, command: COPY });
  expect(await ask({ key, holder, command: `rejoin ${terms.leaseMs} ${lock}` })).toBe('rejoined');
  expect(await ask({ key, holder, command: COPY })).toContain(` ${tick} `);
  expect(await ask({ key, holder, command: 'finish' })).toBe('noted');
});

it('a server that did not record the tick does not record the end of its run', async () => {
  const claim = { key: randomUUID(), holder: randomUUID() };
  const { first } = await question();
  await ask({ ...claim, command: terms }, first);
  expect(await ask({ ...claim, command: 'finish' })).toBe('released');
});

it('a server that was down during a resumption learns of it from the mark of a tick', async () => {
  const claim = { key: randomUUID(), holder: randomUUID() };
  const { first } = await question();
  const resumed = `R${fixedWidth(2)}`;
  const tick = `${'1'.repeat(13)}001`;
  expect(await ask({ ...claim, command: pauseCommand('P', 1) })).toBe('written');
  await ask({ ...claim, command: terms }, first);
  expect(await ask({ ...claim, command: `mark ${tick} 70000 ${resumed}` })).toBe('marked');
  expect(await ask({ ...claim, command: pauseCommand('R', 2) })).toBe('outdated');
  const lock = await ask({ ...claim, command: COPY });
  expect(lock).toContain(` ${tick} `);
  expect(lock).toContain(` ${resumed} `);
  expect(await redis.pttl(`{${claim.key}}:vote`)).toBeGreaterThan(0);
});

it('a claim that has not seen a pause does not mark its tick', async () => {
  const claim = { key: randomUUID(), holder: randomUUID() };
  const { first } = await question();
  const tick = `${'9'.repeat(13)}001`;
  await ask({ ...claim, command: terms }, first);
  expect(await ask({ ...claim, command: pauseCommand('P', 1) })).toBe('written');
  expect(await ask({ ...claim, command: `mark ${tick} 70000 -` })).toBe('lost');
  expect(await ask({ ...claim, command: 'readTicks' })).not.toContain(tick);
});

it('the end of a pause that only one server has keeps the ticks of all', async () => {
  const claim = { key: randomUUID(), holder: randomUUID() };
  expect(await ask({ ...claim, command: pauseCommand('R', 1, { keepsTick: true }) })).toBe('written');
  expect(await ask({ ...claim, command: 'readTicks' })).toBe(`seen 0 - - - R${fixedWidth(1)}`);
  expect(await ask({ ...claim, command: pauseCommand('P', 2) })).toBe('written');
  const paused = await ask({ ...claim, command: 'readTicks' });
  expect(await ask({ ...claim, command: pauseCommand('R', 3, { keepsTick: true }) })).toBe('written');
  expect(await ask({ ...claim, command: 'readTicks' })).toBe(paused.replace('P', 'R').replace(/2$/, '3'));
});

it('a pause and its end note the tick of their caller, not the time of the server', async () => {
  const claim = { key: randomUUID(), holder: randomUUID() };
  const newestTick = async () => (await ask({ ...claim, command: 'readTicks' })).split(' ')[2];
  await ask({ ...claim, command: pauseCommand('P', 1, { nowMs: 5_000 }) });
  expect(await newestTick()).toBe(fixedWidth(5_000_000));
  await ask({ ...claim, command: pauseCommand('R', 2, { nowMs: 7_000 }) });
  expect(await newestTick()).toBe(fixedWidth(7_000_000));
  await ask({ ...claim, command: pauseCommand('P', 3, { nowMs: 8_000 }) });
  await ask({ ...claim, command: pauseCommand('R', 4, { nowMs: 6_000 }) });
  expect(await newestTick()).toBe(fixedWidth(7_000_000));
});

it('a claim that has not seen a pause does not mark its tick after the end of the pause either', async () => {
  const claim = { key: randomUUID(), holder: randomUUID() };
  const { first } = await question();
  const tick = `${'1'.repeat(13)}001`;
  await ask({ ...claim, command: terms }, first);
  await ask({ ...claim, command: pauseCommand('P', 1) });
  await ask({ ...claim, command: pauseCommand('R', 2) });
  expect(await ask({ ...claim, command: `mark ${tick} 70000 -` })).toBe('lost');
});

it('a pause that arrives too late has no effect', async () => {
  const claim = { key: randomUUID(), holder: randomUUID() };
  const pause = { ...claim, command: pauseCommand('P', 1) };
  expect(await ask(pause, NO_BALLOT, { notAfterUs: Date.now() * 1_000 - 60_000_000 })).toBe('untimely');
  expect(await ask({ ...claim, command: 'readTicks' })).toBe('seen 0 - - - -');
});

it('the end of a run is stored even when memory has run out, so the run is not repeated', async () => {
  const server = await startRedis();
  const client = new Redis(server.url);
  try {
    const claim = { key: randomUUID(), holder: randomUUID() };
    const tick = '1'.repeat(13);
    const { first } = await question();
    await ask({ ...claim, command: terms }, first, { client });
    await ask({ ...claim, command: `mark ${tick}001 70000 -` }, NO_BALLOT, { client });
    await client.config('SET', 'maxmemory', '1');
    expect(await ask({ ...claim, command: 'finish' }, NO_BALLOT, { client })).toBe('noted');
    await client.config('SET', 'maxmemory', '0');
    expect(await ask({ ...claim, command: 'readTicks' }, NO_BALLOT, { client })).toMatch(
      new RegExp(`^seen 0 ${tick}000 `),
    );
  } finally {
    await client.quit();
    await server.stop();
  }
});
