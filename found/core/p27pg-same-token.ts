// two callers of one process acquire two permits in one turn: one script, one time, one token
import { typeormBackend } from '../lib/backends/typeorm/index.js';
import { bareLocks } from '../test/support/bare-locks.js';
import { recordMetrics } from '../lib/opentelemetry/lock-metrics.js';
import { show, sleep } from './common.js';
const callbacks: Record<string, any> = {};
const meter: any = { createHistogram: () => ({ record() {} }), createCounter: () => ({ add() {} }),
  createObservableUpDownCounter: (name: string) => ({ addCallback: (c: any) => (callbacks[name] = c), removeCallback() {} }),
  createObservableGauge: (name: string) => ({ addCallback: (c: any) => (callbacks[name] = c), removeCallback() {} }) };
recordMetrics(meter);
const heldMetric = () => { let v: any; callbacks['lock.held']({ observe: (n: number, a: any) => { if (a.template === 'pdf') v = n; } }); return v; };
const url = process.env.TEST_POSTGRES_URL!;
const A = bareLocks({ backend: typeormBackend({ dataSource: { type: 'postgres', url } }), namespace: 'n' + process.pid, instance: 'A' });
await (await A.acquire('warm')).release();
let same = 0; const rounds = 20; let thrown = '';
for (let i = 0; i < rounds; i++) {
  const [one, two] = await Promise.all([A.acquire('pdf', { permits: 64 }), A.acquire('pdf', { permits: 64 })]);
  if (one.fencingToken === two.fencingToken) {
    same++;
    if (!thrown) await A.forceRelease('pdf', one.fencingToken).catch((e) => (thrown = show(e)));
  }
  await one.release(); await two.release();
}
console.log(`in ${same} of ${rounds} rounds both permits have the same fencing token`);
console.log('forceRelease(key, { fencingToken }), as the page and the CLI send it:', thrown);
await sleep(50);
console.log('lock.held after everything was released:', heldMetric(), '| in the store:', (await A.list({})).locks.length);
process.exit();
