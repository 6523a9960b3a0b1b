import { channel } from 'node:diagnostics_channel';

const channelOf = (event: string) => channel(`nestjs-distributed-lock:${event}`);

/** The channels of this process. Node makes one for each name, so all copies of this package publish on the same. */
export const channels = {
  acquired: channelOf('acquired'),
  contended: channelOf('contended'),
  timeout: channelOf('timeout'),
  released: channelOf('released'),
  renewed: channelOf('renewed'),
  'renewal-failed': channelOf('renewal-failed'),
  stalled: channelOf('stalled'),
  lost: channelOf('lost'),
  'transaction-open': channelOf('transaction-open'),
  'order-inverted': channelOf('order-inverted'),
  'permits-differ': channelOf('permits-differ'),
  unavailable: channelOf('unavailable'),
  'server-away': channelOf('server-away'),
  'server-back': channelOf('server-back'),
  'tick-claimed': channelOf('tick-claimed'),
  'tick-skipped': channelOf('tick-skipped'),
  'tick-started': channelOf('tick-started'),
  'tick-ended': channelOf('tick-ended'),
  'run-overdue': channelOf('run-overdue'),
  elected: channelOf('elected'),
  revoked: channelOf('revoked'),
  'leader-changed': channelOf('leader-changed'),
  'leader-failed': channelOf('leader-failed'),
  'leader-overran': channelOf('leader-overran'),
  shutdown: channelOf('shutdown'),
} as const;
