import { once } from 'node:events';
import { shopSlowly } from './customers.js';
import { type ThreeReplicas, withReplicas } from './replicas.js';
import type { Warehouse } from './warehouse.js';

/** Keeps the shop open, to play with. */
export async function serve(warehouse: Warehouse, signal: AbortSignal): Promise<void> {
  await withReplicas(warehouse.environment, async (replicas) => {
    signal.throwIfAborted();
    console.log(invitation(replicas));
    await once(signal, 'abort');
  });
}

/** Keeps the shop open while slow customers buy, so that there is something to see on the page of the locks. */
export async function showBoard(warehouse: Warehouse, signal: AbortSignal): Promise<void> {
  await withReplicas(warehouse.environment, async (replicas) => {
    signal.throwIfAborted();
    console.log(boardInvitation(replicas));
    void shopSlowly(replicas);
    await once(signal, 'abort');
  });
}

const JSON_BODY = `-H 'content-type: application/json' -d`;

/** Where to see the locks in a browser. */
const boardInvitation = ([first, second, third]: ThreeReplicas) => `
See locks, jobs and leaders in a browser, until you press Ctrl-C. Each replica has the page:
${[first, second, third].map(({ url }) => `  ${url}/admin/locks`).join('\n')}
`;

const invitation = ([first, second, third]: ThreeReplicas) => `
The shop is open until you press Ctrl-C:
${[first, second, third].map(({ name, url, pid }) => `  ${name}  ${url}  process ${pid}`).join('\n')}

${boardInvitation([first, second, third])}
Buy something:
  curl ${first.url}/orders ${JSON_BODY} '{"product":"lamp"}'

Pay slowly at one replica; meanwhile, in another terminal, see who holds the lock, and try to buy elsewhere:
  curl ${second.url}/orders ${JSON_BODY} '{"product":"guitar","paymentMs":15000}'
  curl ${third.url}/locks/product:guitar
  curl ${third.url}/orders ${JSON_BODY} '{"product":"guitar"}'

Do it again, and kill the replica that holds the lock:
  kill -9 ${second.pid}

See who leads the dispatch of the crontab, and kill that replica, while another one shows who takes over:
  curl ${first.url}/leader
  curl ${first.url}/dispatches

See what is left, and which replica wrote the report in each of the last seconds:
  curl ${first.url}/products
  curl ${first.url}/reports
`;
