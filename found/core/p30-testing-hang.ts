// a user's test with LockTestingModule: control.take(all permits), then a call with onContention: 'skip'
import { Injectable } from '@nestjs/common'; import { Test } from '@nestjs/testing';
import { Locked } from '../lib/index.js'; import { LockControl, LockTestingModule } from '../lib/testing/index.js';
@Injectable() class Pdfs { @Locked('pdf', { permits: 4, onContention: 'skip' }) async render(): Promise<string | undefined> { return 'rendered'; } }
const app = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [Pdfs] }).compile(); await app.init();
await app.get(LockControl).take('pdf', { permits: 4 });
setTimeout(() => { console.log('not settled after 3 s, CPU ms', Math.round(process.cpuUsage().user / 1e3)); process.exit(); }, 3_000);
console.log(await app.get(Pdfs).render());
