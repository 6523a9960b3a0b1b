import { describe, expect, it } from 'vitest';
import type { BatchResult, OnResult, RequestBatch } from '../../../../lib/core/backend.js';
import type { ReleaseResult } from '../../../../lib/core/backend-results.js';
import { BackendUse } from '../../../../lib/core/backend-use.js';
import { Batcher } from '../../../../lib/core/requests/batcher.js';
import { PendingRequest } from '../../../../lib/core/requests/pending-request.js';
import { TimerWheel } from '../../../../lib/core/timer-wheel.js';
import { SettableClock } from '../../../../lib/testing/settable-clock.js';

/** One call of `execute`, which the spec completes. */
class Call {
  readonly keys: readonly string[];
  readonly result: Promise<BatchResult>;
  resolve: (result: BatchResult) => void = () => undefined;
  fail: (cause: Error) => void = () => undefined;

  constructor(
    { release = [] }: RequestBatch,
    readonly timeoutMs: number,
    readonly onResult: OnResult,
    readonly onReleaseSent: (index: number) => void,
  ) {
    this.keys = release.map(({ key }) => key);
    this.result = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.fail = reject;
    });
  }

  /** Delivers the result of one key early. */
  deliver(key: string, result: ReleaseResult = { kind: 'released' }): void {
    this.onResult('release', this.keys.indexOf(key), result);
  }

  /** Ends the call with this result for all keys. */
  end(kind: 'released' | 'gone' = 'released'): void {
    this.resolve({ acquire: [], renew: [], release: this.keys.map(() => ({ kind })) });
  }
}

/** A release that notes its result. */
class NotedRelease extends PendingRequest<'release'> {
  constructor(
    key: string,
    timeoutMs: number,
    readonly note: (name: string) => void,
  ) {
    super('release', { key, holder: 'ours' }, timeoutMs);
  }

  protected onResult(result: ReleaseResult): void {
    this.note(result.kind === 'unknown' && result.wasSent === false ? 'never sent' : result.kind);
  }

  override onSent(): void {
    this.note('sent');
  }

  protected override onLateResult({ kind }: ReleaseResult): void {
    this.note(`late ${kind}`);
  }
}

/** A batcher on a backend with lanes. Each key is released; results are noted with the time at which they came. */
function batcherOn({ lanes, maxBatchSize }: { lanes?: number; maxBatchSize?: number }) {
  const clock = new SettableClock();
  const calls: Call[] = [];
  const execute = (...args: ConstructorParameters<typeof Call>) => {
    const call = new Call(...args);
    calls.push(call);
    return call.result;
  };
  const limits = { ...(lanes && { lanes }), ...(maxBatchSize && { maxBatchSize }) };
  const backend = { name: 'spec', execute, ...limits } as never;
  const backendUse = new BackendUse(backend);
  const batcher = new Batcher({ backend, backendUse, clock, timerWheel: new TimerWheel(clock) });
  const results: [string, string][] = [];
  const send = (key: string, timeoutMs = 1_000) => {
    batcher.send(new NotedRelease(key, timeoutMs, (name) => results.push([key, name])));
  };
  return { batcher, calls, clock, results, send, keysOf: () => calls.map(({ keys }) => keys) };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe('with lanes', () => {
  it('the first request is sent at the end of its turn, and later ones together when a lane is free', async () => {
    const { send, calls, keysOf, results } = batcherOn({ lanes: 1 });
    send('a');
    await new Promise(process.nextTick);
    expect(keysOf()).toEqual([['a']]);
    send('b');
    await turn();
    send('c');
    await turn();
    expect(keysOf()).toEqual([['a']]);
    calls[0]!.end();
    await turn();
    expect(keysOf()).toEqual([['a'], ['b', 'c']]);
    calls[1]!.end();
    await turn();
    expect(results).toEqual([
      ['a', 'released'],
      ['b', 'released'],
      ['c', 'released'],
    ]);
  });

  it('as many batches are sent at once as there are lanes', async () => {
    const { send, keysOf } = batcherOn({ lanes: 2 });
    for (const key of ['a', 'b', 'c']) {
      send(key);
      await turn();
    }
    expect(keysOf()).toEqual([['a'], ['b']]);
  });

  it('a request waits for the unfinished one of its key, and others are sent before it', async () => {
    const { send, calls, keysOf } = batcherOn({ lanes: 2 });
    send('k');
    await turn();
    send('k');
    send('other');
    await turn();
    expect(keysOf()).toEqual([['k'], ['other']]);
    calls[0]!.end();
    await turn();
    expect(keysOf()).toEqual([['k'], ['other'], ['k']]);
  });

  it('a result that is delivered early reaches its caller at once, and frees its key, but not the lane', async () => {
    const { send, calls, keysOf, results } = batcherOn({ lanes: 2 });
    send('k');
    send('slow');
    await turn();
    calls[0]!.deliver('k');
    expect(results).toEqual([['k', 'released']]);
    send('k');
    send('slow');
    await turn();
    expect(keysOf()).toEqual([['k', 'slow'], ['k']]);
    calls[0]!.end('gone');
    await turn();
    expect(results).toEqual([
      ['k', 'released'],
      ['slow', 'gone'],
    ]);
  });

  it('thousands of keys are sent over one lane in batches of the largest size, in their order', async () => {
    const { send, calls, results } = batcherOn({ lanes: 1, maxBatchSize: 1_000 });
    const keys = Array.from({ length: 3_500 }, (_, index) => `k${index}`);
    for (const key of keys) send(key);
    await turn();
    for (let done = 0; done < 4; done += 1) {
      expect(calls).toHaveLength(done + 1);
      calls[done]!.end();
      await turn();
    }
    expect(calls.map((call) => call.keys.length)).toEqual([1_000, 1_000, 1_000, 500]);
    expect(results.map(([key]) => key)).toEqual(keys);
  });

  it('a release is sent when the backend says so, which may first have to connect', async () => {
    const { send, calls, results } = batcherOn({ lanes: 1 });
    send('a');
    send('b');
    await turn();
    expect(results).toEqual([]);
    calls[0]!.onReleaseSent(1);
    expect(results).toEqual([['b', 'sent']]);
  });

  it('the timeout of a batch is the longest that is left', async () => {
    const { send, calls, clock } = batcherOn({ lanes: 1 });
    send('a');
    await turn();
    send('b', 500);
    send('c', 900);
    await clock.advance(300);
    calls[0]!.end();
    await turn();
    expect(calls[1]!.timeoutMs).toBe(600);
  });
});

describe('a request whose time is over', () => {
  it('before it was sent is reported as never sent, and is not sent', async () => {
    const { send, calls, clock, keysOf, results } = batcherOn({ lanes: 1 });
    send('a', 5_000);
    await turn();
    send('b', 200);
    send('a', 300);
    await clock.advance(400);
    expect(results).toEqual([
      ['b', 'never sent'],
      ['a', 'never sent'],
    ]);
    calls[0]!.end();
    await turn();
    expect(keysOf()).toEqual([['a']]);
  });

  it('after it was sent is unknown, and its result is delivered as a late one', async () => {
    const { send, calls, clock, results } = batcherOn({ lanes: 1 });
    send('a', 200);
    await clock.advance(200);
    calls[0]!.deliver('a');
    calls[0]!.end();
    await turn();
    expect(results).toEqual([
      ['a', 'unknown'],
      ['a', 'late released'],
    ]);
  });

  it('keeps its key until the backend has finished it, so that the next one cannot overtake it', async () => {
    const { send, calls, clock, keysOf } = batcherOn({ lanes: 2 });
    send('k', 200);
    await clock.advance(200);
    send('k', 5_000);
    await turn();
    expect(keysOf()).toEqual([['k']]);
    calls[0]!.deliver('k');
    await turn();
    expect(keysOf()).toEqual([['k'], ['k']]);
  });
});

describe('a lane that never returns', () => {
  it('keeps nothing but its own keys from being sent, if there is another', async () => {
    const { send, calls, clock, keysOf, results } = batcherOn({ lanes: 2 });
    send('stuck');
    await turn();
    send('stuck');
    for (const key of ['a', 'b']) {
      send(key);
      await turn();
      calls.at(-1)!.end();
      await turn();
    }
    await clock.advance(1_000);
    expect(keysOf()).toEqual([['stuck'], ['a'], ['b']]);
    expect(results).toEqual([
      ['a', 'released'],
      ['b', 'released'],
      ['stuck', 'unknown'],
      ['stuck', 'never sent'],
    ]);
  });

  it('leaves every request with a result in time, if there is no other', async () => {
    const { send, clock, keysOf, results } = batcherOn({ lanes: 1 });
    for (const key of ['stuck', 'a', 'b']) {
      send(key);
      await turn();
    }
    await clock.advance(1_000);
    send('later');
    await clock.advance(1_000);
    expect(keysOf()).toEqual([['stuck']]);
    expect(results).toEqual([
      ['stuck', 'unknown'],
      ['a', 'never sent'],
      ['b', 'never sent'],
      ['later', 'never sent'],
    ]);
  });
});

it('a call that fails after some results leaves those as they are, and frees its lane', async () => {
  const { send, calls, keysOf, results } = batcherOn({ lanes: 1 });
  send('a');
  send('b');
  await turn();
  send('next');
  calls[0]!.deliver('a');
  calls[0]!.fail(new Error('connection lost'));
  await turn();
  expect(results).toEqual([
    ['a', 'released'],
    ['b', 'unknown'],
  ]);
  expect(keysOf()).toEqual([['a', 'b'], ['next']]);
});

it('a result for a request that was not made is ignored', async () => {
  const { send, calls, results } = batcherOn({ lanes: 1 });
  send('a');
  await turn();
  calls[0]!.onResult('renew', 0, { kind: 'renewed' });
  calls[0]!.onResult('release', 7, { kind: 'released' });
  calls[0]!.end();
  await turn();
  expect(results).toEqual([['a', 'released']]);
});

describe('close with requests that wait for a lane', () => {
  it('sends them first, and refuses those that come later', async () => {
    const { batcher, send, calls, keysOf, results } = batcherOn({ lanes: 1 });
    send('a');
    await turn();
    send('b');
    await turn();
    let isClosed = false;
    const closed = batcher.close().then(() => (isClosed = true));
    send('late');
    await turn();
    expect(isClosed).toBe(false);
    calls[0]!.end();
    await closed;
    expect(keysOf()).toEqual([['a'], ['b']]);
    expect(results).toEqual([
      ['late', 'never sent'],
      ['a', 'released'],
    ]);
  });

  it('waits no longer than they would', async () => {
    const { batcher, send, clock, results } = batcherOn({ lanes: 1 });
    send('stuck', 5_000);
    await turn();
    send('b', 200);
    await turn();
    const closed = batcher.close();
    await clock.advance(200);
    await closed;
    expect(results).toEqual([['b', 'never sent']]);
  });
});

describe('without lanes', () => {
  it('every turn is sent at once, and the requests for one key in their order', async () => {
    const { send, keysOf, results } = batcherOn({});
    send('k');
    send('a');
    send('k');
    await turn();
    send('k');
    await turn();
    expect(keysOf()).toEqual([['k', 'a'], ['k'], ['k']]);
    expect(results).toEqual(['k', 'a', 'k', 'k'].map((key) => [key, 'sent']));
  });
});
