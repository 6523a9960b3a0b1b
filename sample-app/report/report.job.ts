import { Injectable } from '@nestjs/common';
import { type CronRun, SingletonCron } from 'nestjs-distributed-lock';
import { DataSource } from 'typeorm';
import { Order } from '../orders/order.entity.js';
import { Settings } from '../settings/settings.js';
import { Report } from './report.entity.js';

@Injectable()
export class ReportJob {
  constructor(
    private readonly dataSource: DataSource,
    private readonly settings: Settings,
  ) {}

  /**
   * Each second, in one replica. A replica that dies in the middle of a run takes its tick along, and the next ones are
   * skipped until the lease is over; half a period loses no tick but its own.
   */
  @SingletonCron('* * * * * *', { leaseMs: 500 })
  async report({ tick, fencingToken }: CronRun): Promise<void> {
    const sold = await this.dataSource.manager.count(Order);
    await this.dataSource.manager.insert(Report, {
      tick: tick.toISOString(),
      replica: this.settings.replica,
      fencingToken: String(fencingToken),
      sold,
    });
  }
}
