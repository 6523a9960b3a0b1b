import { describe, expect, it } from 'vitest';
import { type WaitSignal, WaitController } from '../../../../lib/core/waiting/wait-controller.js';

describe('a wait controller', () => {
  it('calls its listeners once, with the first reason', () => {
    const controller = new WaitController();
    const reasons: unknown[] = [];
    controller.addEventListener('abort', () => reasons.push(controller.reason));
    controller.abort('first');
    controller.abort('second');
    expect(reasons).toEqual(['first']);
    expect(controller.aborted).toBe(true);
    expect(() => controller.throwIfAborted()).toThrow('first');
  });

  it('does not call a listener that was removed', () => {
    const controller = new WaitController();
    const called: string[] = [];
    const removed = () => called.push('removed');
    controller.addEventListener('abort', removed);
    controller.addEventListener('abort', () => called.push('kept'));
    controller.removeEventListener('abort', removed);
    controller.abort('over');
    expect(called).toEqual(['kept']);
  });

  it('calls every listener, although each removes itself', () => {
    const controller = new WaitController();
    const called: string[] = [];
    for (const name of ['first', 'second', 'third']) {
      const listener = () => {
        controller.removeEventListener('abort', listener);
        called.push(name);
      };
      controller.addEventListener('abort', listener);
    }
    controller.abort('over');
    expect(called).toEqual(['first', 'second', 'third']);
  });

  it('follows a signal that aborts, or has aborted', () => {
    const signals = [new AbortController(), new WaitController()];
    for (const followed of signals) {
      const signal = followed instanceof AbortController ? followed.signal : followed;
      const before = new WaitController();
      before.follow(signal);
      followed.abort('over');
      const after = new WaitController();
      after.follow(signal);
      expect([before.reason, after.reason]).toEqual(['over', 'over']);
    }
  });

  it('follows a signal of another runtime, which Node does not know', () => {
    const foreign = new WaitController();
    const { aborted, reason } = foreign;
    const signal: WaitSignal = {
      ...{ aborted, reason },
      addEventListener: (type, listener) => foreign.addEventListener(type, listener),
      removeEventListener: (type, listener) => foreign.removeEventListener(type, listener),
    };
    const controller = new WaitController();
    controller.follow(signal);
    foreign.abort('over');
    expect(controller.aborted).toBe(true);
  });

  it('no longer follows a signal when it has been told to stop', () => {
    const followed = new AbortController();
    const controller = new WaitController();
    controller.follow(followed.signal)();
    followed.abort('over');
    expect(controller.aborted).toBe(false);
  });
});
