/** The messages of etcd as TypeScript sees them. 64-bit numbers are decimal strings. */
export interface ResponseHeader {
  readonly revision: string;
  readonly raft_term: string;
}

export interface KeyValue {
  readonly key: Buffer;
  readonly create_revision: string;
  readonly mod_revision: string;
  readonly value: Buffer;
  /** The id of its lease; `'0'` without one. */
  readonly lease: string;
}

export interface RangeRequest {
  readonly key: Buffer;
  readonly range_end?: Buffer;
  readonly limit?: number;
  readonly sort_order?: 'ASCEND' | 'DESCEND';
  readonly sort_target?: 'CREATE';
  readonly keys_only?: boolean;
  readonly count_only?: boolean;
  readonly max_create_revision?: string;
}

export interface RangeResponse {
  readonly header: ResponseHeader;
  readonly kvs: readonly KeyValue[];
  readonly more: boolean;
  readonly count: string;
}

export interface Compare {
  readonly result: 'EQUAL' | 'GREATER' | 'LESS';
  readonly target: 'CREATE' | 'MOD';
  readonly key: Buffer;
  readonly range_end?: Buffer;
  readonly create_revision?: string;
  readonly mod_revision?: string;
}

/** One operation of a transaction. */
export interface RequestOp {
  readonly request_range?: RangeRequest;
  readonly request_put?: { readonly key: Buffer; readonly value: Buffer; readonly lease?: string };
  readonly request_delete_range?: {
    readonly key: Buffer;
    readonly range_end?: Buffer;
    readonly prev_kv?: boolean;
  };
  readonly request_txn?: TxnRequest;
}

export interface ResponseOp {
  readonly response_range?: RangeResponse;
  readonly response_delete_range?: { readonly deleted: string; readonly prev_kvs: readonly KeyValue[] };
  readonly response_txn?: TxnResponse;
}

export interface TxnRequest {
  readonly compare: readonly Compare[];
  readonly success: readonly RequestOp[];
  readonly failure?: readonly RequestOp[];
}

export interface TxnResponse {
  readonly header: ResponseHeader;
  readonly succeeded: boolean;
  readonly responses: readonly ResponseOp[];
}

export interface WatchCreateRequest {
  readonly key: Buffer;
  readonly start_revision: string;
  readonly filters: readonly ['NOPUT'];
  readonly watch_id: string;
}

export interface WatchRequest {
  readonly create_request?: WatchCreateRequest;
  readonly cancel_request?: { readonly watch_id: string };
}

export interface WatchResponse {
  readonly watch_id: string;
  readonly created: boolean;
  readonly canceled: boolean;
  readonly events: readonly { readonly kv: KeyValue }[];
}

export interface LeaseRequest {
  readonly ID: string;
}

export interface LeaseReply {
  readonly header: ResponseHeader;
  readonly ID: string;
  /** The rest of the lease in whole seconds; 0 or less if there is no such lease. */
  readonly TTL: string;
}

/** The methods with one request and one reply. */
export interface UnaryMethods {
  'KV.Range': [RangeRequest, RangeResponse];
  'KV.Txn': [TxnRequest, TxnResponse];
  'Lease.LeaseGrant': [
    { readonly TTL: string; readonly ID: string },
    { readonly ID: string; readonly TTL: string },
  ];
  'Lease.LeaseTimeToLive': [LeaseRequest, LeaseReply];
  'Auth.Authenticate': [{ readonly name: string; readonly password: string }, { readonly token: string }];
  'Cluster.MemberList': [object, { readonly members: readonly { readonly isLearner: boolean }[] }];
  'Maintenance.Status': [object, { readonly version: string }];
}

export interface StreamMethods {
  'Lease.LeaseKeepAlive': [LeaseRequest, LeaseReply];
  'Watch.Watch': [WatchRequest, WatchResponse];
}
