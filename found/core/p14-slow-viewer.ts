import { EventEmitter } from 'node:events';
import { BoardFeed } from '../lib/board/board-feed.js';
import { openStream } from '../lib/board/board-stream.js';
const rate = Number(process.argv[2] ?? 30_000); // bytes per second that the browser reads
class Raw extends EventEmitter { destroyed = false; shouldKeepAlive = true; buffered = 0; got: Record<string, number> = {};
  constructor() { super(); setInterval(() => { if (this.buffered <= 0) return; this.buffered -= rate / 50; if (this.buffered <= 0) { this.buffered = 0; this.emit('drain'); } }, 20); }
  setHeader() {} writeHead() {} end() {} destroy() {}
  write(text: string) { const topic = /^event: (\w+)/.exec(text)![1]!; this.got[topic] = (this.got[topic] ?? 0) + 1; this.buffered += text.length; return this.buffered < 16_384; } }
const events = Array.from({ length: 100 }, (_, i) => ({ event: 'tick-ended', subject: `Reports.job${i}`, detail: 'failed after 1.0 s: '.padEnd(250, 'x'), isFault: true, atMs: 1, count: 1 }));
const wait = (v: any) => new Promise((r) => setTimeout(() => r(v), 3));
const reader: any = { events, readStore: () => wait({ status: 'up', latencyMs: 1 }), readLocks: () => wait({ locks: Array.from({ length: 20 }, (_, i) => ({ key: `order:${i}` })) }), readLeaders: () => wait([]), readJobs: () => wait([{ key: 'a', runs: [] }]) };
const raw = new Raw();
openStream(raw as any, { feed: new BoardFeed(reader), view: { prefix: '', cursor: undefined }, about: {} });
setTimeout(() => { console.log(`after 20 s at ${rate} bytes/s the viewer was sent`, JSON.stringify(raw.got)); process.exit(); }, 20_000);
