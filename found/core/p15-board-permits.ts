// what the page gets for a key with permits, and what its script makes of it (rows are kept by key)
import { MemoryBackend, proc } from './common.js';
const A = proc(new MemoryBackend(), 'A');
for (let i = 0; i < 5; i++) await A.acquire('pdf', { permits: 5 });
const { locks } = await A.list({});
console.log('list():', locks.map((l) => `${l.key} permit ${l.permit} token ${l.fencingToken}`));
const rows = new Map(locks.map((l) => [l.key, l]));
console.log('rows of the page (new Map by key, as board.js showLocks):', rows.size, '- the count says', locks.length, 'locks; the Release button sends', JSON.stringify({ key: 'pdf', fencingToken: String(rows.get('pdf')!.fencingToken) }));
process.exit();
