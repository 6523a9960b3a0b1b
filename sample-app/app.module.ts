import { Module } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { TypeOrmModule } from '@nestjs/typeorm';
import { DistributedLockModule } from 'nestjs-distributed-lock';
import { LockBoardModule } from 'nestjs-distributed-lock/board';
import { DataSource } from 'typeorm';
import { databaseOptions } from './database/database.options.js';
import { DispatchModule } from './dispatch/dispatch.module.js';
import { lockOptions } from './locks/lock.options.js';
import { LocksModule } from './locks/locks.module.js';
import { OrdersModule } from './orders/orders.module.js';
import { ReportModule } from './report/report.module.js';
import { Settings } from './settings/settings.js';
import { SettingsModule } from './settings/settings.module.js';

/** The shop. The lock module needs no place of its own in this list: it works wherever it stands. */
@Module({
  imports: [
    SettingsModule,
    TypeOrmModule.forRootAsync({ inject: [Settings], useFactory: databaseOptions }),
    DistributedLockModule.forRootAsync({ inject: [Settings, DataSource], useFactory: lockOptions }),
    // The sample has no users and listens on the loopback address only. Your application has a guard here.
    LockBoardModule.forRoot({ path: 'admin/locks', guards: 'none', actions: 'all' }),
    ScheduleModule.forRoot(),
    OrdersModule,
    ReportModule,
    DispatchModule,
    LocksModule,
  ],
})
export class AppModule {}
