import { Client, credentials, Metadata } from '@grpc/grpc-js';
for (const host of ['127.0.0.1:7', 'nowhere.invalid:7', 'localhost:7']) {
  const c = new Client(host, credentials.createInsecure(), {});
  await new Promise(r => c.makeUnaryRequest('/a/b', x => Buffer.from(''), x => x, {}, new Metadata(), (e) => { console.log(host, e.code, e.details); r(); }));
  c.close();
}
