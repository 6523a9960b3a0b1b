import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { TIMED } from '../properties/timed-redis.js';
import { serviceUrl } from '../support/environment.js';

const redis = new Redis(serviceUrl('TEST_REDIS_URL'));
afterAll(() => redis.quit());

const NOW_US = 1_800_000_000_000_000;
const HEADER = `${'9'.repeat(16)} 3 channel`;
const ACQUIRE = 'acquire 30000 1 0 instance';
const NO_TICK = ' '.repeat(16);

const wide = (us: number) => String(us).padStart(16, '0');

interface Outcome {
  readonly reply: unknown;
  readonly text: string | null;
  readonly remainingTens: number;
}

/** Runs the script on a key with this text. */
async function run(text: string | undefined, args: readonly string[]): Promise<Outcome> {
  const key = randomUUID();
  const keys = [`{${key}}:lock`, `{${key}}:line`, `{${key}}:waiting`] as const;
  if (text !== undefined) await redis.set(keys[0], text, 'PX', 500_000);
  const reply = await redis.eval(TIMED, 3, ...keys, ...args, NOW_US);
  return {
    reply,
    text: await redis.get(keys[0]),
    // In tens of seconds: a busy machine may take a second from one command to the next.
    remainingTens: Math.round((await redis.pttl(keys[0])) / 10_000),
  };
}

/** What the rest of the script decides about the same request. */
async function runAsRow(text: string | undefined, args: readonly string[]): Promise<Outcome> {
  return run(text, [HEADER, args.length === 1 ? 'release' : args[1]!, '1', args.at(-1)!]);
}

/** All kinds of texts that a lock may have, and some that it never has. */
function* lockTexts(): Iterable<string | undefined> {
  yield undefined;
  for (const mark of ['0', '1'])
    for (const last of [NOW_US - 5_000_000, NOW_US - 1, NOW_US, NOW_US + 5_000_000])
      for (const until of [0, NOW_US - 1, NOW_US, NOW_US + 100_000, NOW_US + 20_000_000])
        for (const token of [0, last])
          for (const tick of [NO_TICK, '1799999999999001', '1799999999999000', '1799999999999501'])
            for (const rest of ['', 'me 1 instance', 'me2 1 instance', 'other 1 me ', 'm 1 e'])
              yield `${mark} ${wide(last)} ${wide(until)} ${wide(token)} ${tick} ${rest}`;
}

/** A reply that is the time alone means that the request was granted or released. */
const inFull = ({ reply, ...outcome }: Outcome, done: string) => ({
  ...outcome,
  reply: typeof reply === 'string' ? [reply, done] : reply,
});

describe('a lone request', () => {
  it.each([
    ['acquire', 'granted', [HEADER, ACQUIRE, 'me']],
    ['release', 'released', ['me']],
  ])('to %s gets what any other request gets, for every text of a lock', async (_verb, done, args) => {
    const differences: unknown[] = [];
    let loneReplies = 0;
    const compare = async (text: string | undefined) => {
      const [lone, row] = await Promise.all([run(text, args), runAsRow(text, args)]);
      if (typeof lone.reply === 'string') loneReplies += 1;
      if (!isDeepStrictEqual(inFull(lone, done), row)) differences.push({ text, lone, row });
    };
    const texts = [...lockTexts()];
    for (let at = 0; at < texts.length; at += 100) await Promise.all(texts.slice(at, at + 100).map(compare));
    expect(differences).toEqual([]);
    expect(loneReplies).toBeGreaterThan(1);
  });

  it('that is too late is not granted', async () => {
    const late = `${wide(NOW_US - 1)} 3 channel`;
    expect(await run(undefined, [late, ACQUIRE, 'me'])).toMatchObject({
      reply: [wide(NOW_US), 'late'],
      text: null,
    });
    const inTime = `${wide(NOW_US)} 3 channel`;
    expect(await run(undefined, [inTime, ACQUIRE, 'me'])).toMatchObject({ reply: wide(NOW_US) });
  });

  it('gets a token above the newest one, also if the clock was set back', async () => {
    const newest = `0 ${wide(NOW_US + 5)} ${wide(0)} ${wide(0)} ${NO_TICK}`;
    const { reply, text } = await run(newest, [HEADER, ACQUIRE, 'me']);
    expect(reply).toEqual([wide(NOW_US), `granted ${wide(NOW_US + 6)}`]);
    expect(text).toContain(`0 ${wide(NOW_US + 6)} ${wide(NOW_US + 30_000_000)} ${wide(NOW_US + 6)} `);
  });

  it('to release gives back the fencing tokens that nobody used', async () => {
    const { text } = await run(undefined, [HEADER, 'acquire 30000 64 0 instance', 'me']);
    expect(text).toContain(`0 ${wide(NOW_US + 63)} ${wide(NOW_US + 30_000_000)} ${wide(NOW_US)} `);
    expect((await run(text!, ['me'])).text).toBe(`0 ${wide(NOW_US)} ${wide(0)} ${wide(0)} ${NO_TICK}`);
    expect((await runAsRow(text!, ['me'])).text).toBe(
      `0 ${wide(NOW_US + 63)} ${wide(0)} ${wide(0)} ${NO_TICK}`,
    );
  });
});
