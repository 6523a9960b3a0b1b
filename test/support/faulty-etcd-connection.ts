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
  /** The next transaction with a nested one takes effect, and fails with this. */
  failsWith: Error | undefined;
  /** Before each transaction is sent. */
  onTransaction: ((request: TxnRequest) => Promise<void>) | undefined;
  /** The reply to the next call of this method is held until then. Cleared when etcd has replied. */
  holds: { readonly method: 'KV.Txn' | 'KV.Range'; readonly until: Promise<void> } | undefined;
  termOf: ((reply: LeaseReply) => LeaseReply) | undefined;

  constructor(url: string) {
    const credentials = ChannelCredentials.createInsecure();
    super({ hosts: [hostOf(url)], credentials, auth: undefined, keyPrefix: '' });
  }

  override async call(...args: Parameters<EtcdConnection['call']>): Promise<never> {
    if (args[0] === 'KV.Txn') await this.onTransaction?.(args[1] as TxnRequest);
    if (!this.loses || args[0] !== 'KV.Txn') return this.#callAndHold(args);
    this.loses = false;
    this.delayed = args[1] as TxnRequest;
    throw new Error('the reply was lost');
  }

  async #callAndHold(args: Parameters<EtcdConnection['call']>): Promise<never> {
    const held = this.holds?.method === args[0] ? this.holds : undefined;
    const reply = await super.call(...args);
    const { failsWith } = this;
    if (failsWith && isNested(args[1])) {
      this.failsWith = undefined;
      throw failsWith;
    }
    if (held) this.holds = undefined;
    await held?.until;
    return reply as never;
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

const isNested = (request: object) =>
  (request as Partial<TxnRequest>).success?.some(({ request_txn }) => request_txn) ?? false;
