import { ChannelCredentials } from '@grpc/grpc-js';
import { EtcdConnection } from '../../lib/backends/etcd/rpc/etcd-connection.js';
import type { LeaseReply, TxnRequest, TxnResponse } from '../../lib/backends/etcd/rpc/messages.js';
import { hostOf } from './etcd.js';

const TIMEOUT_MS = 10_000;

/** A connection to etcd that can keep a transaction on its way, and change the replies to renewals. */
export class FaultyEtcdConnection extends EtcdConnection {
  delayed: TxnRequest | undefined;
  /** The next transaction fails, and may arrive later. */
  loses = false;
  termOf: ((reply: LeaseReply) => LeaseReply) | undefined;

  constructor(url: string) {
    const credentials = ChannelCredentials.createInsecure();
    super({ hosts: [hostOf(url)], credentials, auth: undefined, keyPrefix: '' });
  }

  override async call(...args: Parameters<EtcdConnection['call']>): Promise<never> {
    if (!this.loses || args[0] !== 'KV.Txn') return (await super.call(...args)) as never;
    this.loses = false;
    this.delayed = args[1] as TxnRequest;
    throw new Error('the reply was lost');
  }

  override async exchange(...args: Parameters<EtcdConnection['exchange']>): Promise<never> {
    const reply = (await super.exchange(...args)) as LeaseReply;
    return (this.termOf?.(reply) ?? reply) as never;
  }

  /** The request that was lost arrives now. */
  arrive(): Promise<TxnResponse> {
    if (!this.delayed) throw new Error('Expected a request.');
    return super.call('KV.Txn', this.delayed, TIMEOUT_MS);
  }
}
