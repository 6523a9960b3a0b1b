import { fromJSON } from '@grpc/proto-loader';

/** A field of a message: its type and its number. A `[]` after the type makes a list. */
type Fields = Readonly<Record<string, readonly [type: string, id: number]>>;

const message = (fields: Fields) => ({
  fields: Object.fromEntries(
    Object.entries(fields).map(([name, [type, id]]) => [
      name,
      type.endsWith('[]') ? { rule: 'repeated', type: type.slice(0, -2), id } : { type, id },
    ]),
  ),
});

const method = (name: string, isStream = false) => ({
  [name]: {
    ...{ requestType: `${name}Request`, responseType: `${name}Response` },
    ...(isStream && { requestStream: true, responseStream: true }),
    comment: '',
  },
});

const oneof = (fields: Fields, name: string, members: readonly string[]) => ({
  ...message(fields),
  oneofs: { [name]: { oneof: [...members] } },
});

const REQUEST_OP = { request_range: 1, request_put: 2, request_delete_range: 3, request_txn: 4 };
const RESPONSE_OP = { response_range: 1, response_put: 2, response_delete_range: 3, response_txn: 4 };
const OPERATIONS = ['Range', 'Put', 'DeleteRange', 'Txn'];
const operations = (names: Readonly<Record<string, number>>, suffix: string): Fields =>
  Object.fromEntries(
    Object.entries(names).map(([name, id]) => [name, [`${OPERATIONS[id - 1]}${suffix}`, id]]),
  );

/**
 * The messages and methods of etcd that the backend uses, with the fields that it uses.
 *
 * @see https://etcd.io/docs/v3.4/dev-guide/api_reference_v3/
 */
const ETCD = {
  KV: { methods: { ...method('Range'), ...method('Txn') } },
  Lease: {
    methods: { ...method('LeaseGrant'), ...method('LeaseKeepAlive', true), ...method('LeaseTimeToLive') },
  },
  Watch: { methods: method('Watch', true) },
  Auth: { methods: method('Authenticate') },
  Cluster: { methods: method('MemberList') },
  Maintenance: { methods: method('Status') },

  ResponseHeader: message({ revision: ['int64', 3], raft_term: ['uint64', 4] }),
  KeyValue: message({
    ...{ key: ['bytes', 1], create_revision: ['int64', 2], mod_revision: ['int64', 3] },
    ...{ value: ['bytes', 5], lease: ['int64', 6] },
  }),
  RangeRequest: message({
    ...{ key: ['bytes', 1], range_end: ['bytes', 2], limit: ['int64', 3] },
    ...{ sort_order: ['SortOrder', 5], sort_target: ['SortTarget', 6] },
    ...{ keys_only: ['bool', 8], count_only: ['bool', 9], max_create_revision: ['int64', 13] },
  }),
  SortOrder: { values: { NONE: 0, ASCEND: 1, DESCEND: 2 } },
  SortTarget: { values: { KEY: 0, CREATE: 2 } },
  RangeResponse: message({
    ...{ header: ['ResponseHeader', 1], kvs: ['KeyValue[]', 2], more: ['bool', 3], count: ['int64', 4] },
  }),
  PutRequest: message({ key: ['bytes', 1], value: ['bytes', 2], lease: ['int64', 3] }),
  PutResponse: message({}),
  DeleteRangeRequest: message({ key: ['bytes', 1], range_end: ['bytes', 2], prev_kv: ['bool', 3] }),
  DeleteRangeResponse: message({ deleted: ['int64', 2], prev_kvs: ['KeyValue[]', 3] }),
  RequestOp: oneof(operations(REQUEST_OP, 'Request'), 'request', Object.keys(REQUEST_OP)),
  ResponseOp: oneof(operations(RESPONSE_OP, 'Response'), 'response', Object.keys(RESPONSE_OP)),
  Compare: oneof(
    {
      ...{ result: ['CompareResult', 1], target: ['CompareTarget', 2], key: ['bytes', 3] },
      ...{ create_revision: ['int64', 5], mod_revision: ['int64', 6], range_end: ['bytes', 64] },
    },
    'target_union',
    ['create_revision', 'mod_revision'],
  ),
  CompareResult: { values: { EQUAL: 0, GREATER: 1, LESS: 2 } },
  CompareTarget: { values: { VERSION: 0, CREATE: 1, MOD: 2 } },
  TxnRequest: message({
    compare: ['Compare[]', 1],
    success: ['RequestOp[]', 2],
    failure: ['RequestOp[]', 3],
  }),
  TxnResponse: message({
    ...{ header: ['ResponseHeader', 1], succeeded: ['bool', 2], responses: ['ResponseOp[]', 3] },
  }),

  LeaseGrantRequest: message({ TTL: ['int64', 1], ID: ['int64', 2] }),
  LeaseGrantResponse: message({ ID: ['int64', 2], TTL: ['int64', 3] }),
  LeaseKeepAliveRequest: message({ ID: ['int64', 1] }),
  LeaseKeepAliveResponse: message({ header: ['ResponseHeader', 1], ID: ['int64', 2], TTL: ['int64', 3] }),
  LeaseTimeToLiveRequest: message({ ID: ['int64', 1] }),
  LeaseTimeToLiveResponse: message({ ID: ['int64', 2], TTL: ['int64', 3] }),

  WatchRequest: oneof(
    { create_request: ['WatchCreateRequest', 1], cancel_request: ['WatchCancelRequest', 2] },
    'request_union',
    ['create_request', 'cancel_request'],
  ),
  WatchCreateRequest: message({
    ...{
      key: ['bytes', 1],
      start_revision: ['int64', 3],
      filters: ['FilterType[]', 5],
      watch_id: ['int64', 7],
    },
  }),
  FilterType: { values: { NOPUT: 0, NODELETE: 1 } },
  WatchCancelRequest: message({ watch_id: ['int64', 1] }),
  WatchResponse: message({
    ...{ header: ['ResponseHeader', 1], watch_id: ['int64', 2], created: ['bool', 3], canceled: ['bool', 4] },
    events: ['Event[]', 11],
  }),
  Event: message({ kv: ['KeyValue', 2] }),

  AuthenticateRequest: message({ name: ['string', 1], password: ['string', 2] }),
  AuthenticateResponse: message({ token: ['string', 2] }),
  MemberListRequest: message({}),
  MemberListResponse: message({ members: ['Member[]', 2] }),
  Member: message({ ID: ['uint64', 1], isLearner: ['bool', 5] }),
  StatusRequest: message({}),
  StatusResponse: message({ version: ['string', 2] }),
};

/** The serializers of all methods. 64-bit numbers are decimal strings. */
export const definitions = fromJSON(
  { nested: { etcdserverpb: { nested: ETCD } } },
  { keepCase: true, longs: String, enums: String, defaults: true, oneofs: false },
);
