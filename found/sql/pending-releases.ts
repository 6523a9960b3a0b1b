import { PendingReleases } from '../lib/backends/redis/quorum/replication/pending-releases.js';
const sent: string[] = [];
const p = new PendingReleases({ isReachable: true, sendRequest: (r) => { sent.push(String(r.command)); return Promise.resolve('gone'); } }, 60_000);
p.add({ key: 'k', holder: 'h', command: 'yield 0000000000000001 0000000000000001 0' }, 500);
p.add({ key: 'k', holder: 'h', command: 'yield 0000000000000002 0000000000000002 0' }, 500);
await new Promise((r) => setTimeout(r, 1_500));
console.log('sent', sent); process.exit(0);
