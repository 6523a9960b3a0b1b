import { type Timer, systemClock } from '../core/clock.js';
import { VERSION } from '../core/version.js';
import type { BoardFeed, BoardView, Topic, Viewer } from './board-feed.js';
import { type BoardResponse, type RawResponse, SECURITY_HEADERS } from './http.js';

const STREAM_HEADERS: Readonly<Record<string, string>> = {
  ...SECURITY_HEADERS,
  'content-type': 'text/event-stream; charset=utf-8',
  // no-transform: a compressing middleware would keep the events back.
  'cache-control': 'no-store, no-transform',
  'x-accel-buffering': 'no',
};

/** A stream ends after this time, and the page opens another, so that the guards check again who looks. */
const MAX_STREAM_MS = 5 * 60_000;
/** How long the end of a stream waits for a browser that does not read. The server could not close before. */
const END_TIMEOUT_MS = 1_000;

interface StreamParts {
  readonly feed: BoardFeed;
  readonly view: BoardView;
  /** What the page shows of the replica that it is connected to. */
  readonly about: object;
}

/** Sends server-sent events until the browser goes away or the application shuts down. */
export function openStream(response: BoardResponse, { feed, view, about }: StreamParts): void {
  response.hijack?.();
  const raw = response.raw ?? (response as BoardResponse & RawResponse);
  // The browser has gone away while a guard decided: there is no 'close' any more.
  if (raw.destroyed ?? raw.stream?.destroyed) return;
  // The server could not close while a connection is kept alive.
  raw.shouldKeepAlive = false;
  for (const [name, value] of Object.entries(STREAM_HEADERS)) raw.setHeader(name, value);
  raw.writeHead(200);
  // Not writableNeedDrain, which HTTP/2 does not have.
  let isFull = false;
  // A browser that reads slowly misses some states, and then gets the newest one of each topic, the longest waiting first.
  const unsent = new Map<Topic, object>();
  const sendUnsent = () => {
    for (const [topic, data] of unsent) {
      if (isFull) return;
      unsent.delete(topic);
      isFull = !raw.write(eventOf(topic, data));
    }
  };
  const send: Viewer['send'] = (topic, data) => {
    unsent.set(topic, data);
    sendUnsent();
  };
  raw.on('drain', () => {
    isFull = false;
    sendUnsent();
  });
  raw.write(eventOf('hello', { ...about, version: VERSION }));
  let timer: Timer;
  const end = () => {
    stop();
    raw.end();
    timer = systemClock.after(END_TIMEOUT_MS, () => void raw.destroy());
  };
  const remove = feed.add({ view, send, end });
  const stop = () => {
    timer.cancel();
    remove();
  };
  timer = systemClock.after(MAX_STREAM_MS, end);
  raw.on('close', stop);
  // A write after the browser has gone away. 'close' follows.
  raw.on('error', stop);
}

/** All viewers get the same objects, so each is written as JSON once. */
const texts = new WeakMap<object, string>();

/** JSON has no line breaks, so the data is one line. */
function eventOf(name: string, data: object): string {
  const text = texts.get(data) ?? `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
  texts.set(data, text);
  return text;
}
