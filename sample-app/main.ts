/** One replica of the shop. `run.ts` starts three of them. */
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';

const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] });
// Without this a SIGTERM would end the process with its locks held, and others would wait until the leases are over.
app.enableShutdownHooks();
await app.listen(process.env['PORT'] ?? 0, '127.0.0.1');

// For who started us and waits; if that process dies, however it dies, we end as well.
process.send?.({ url: await app.getUrl() });
process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
