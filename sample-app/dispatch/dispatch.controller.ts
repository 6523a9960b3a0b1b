import { Controller, Get, NotFoundException, UseFilters } from '@nestjs/common';
import { DataSource } from 'typeorm';
import { LockErrorFilter } from '../locks/lock-error.filter.js';
import { CrontabJob } from './crontab-job.entity.js';
import { Dispatch } from './dispatch.entity.js';
import { Dispatcher } from './dispatcher.js';

@Controller()
@UseFilters(LockErrorFilter)
export class DispatchController {
  constructor(
    private readonly dispatcher: Dispatcher,
    private readonly dataSource: DataSource,
  ) {}

  /** The same answer from each replica. */
  @Get('leader')
  async leader() {
    const leader = await this.dispatcher.leader();
    if (!leader) throw new NotFoundException('Nobody leads at present.');
    return leader;
  }

  @Get('crontab')
  crontab(): Promise<CrontabJob[]> {
    return this.dataSource.manager.find(CrontabJob, { order: { name: 'ASC' } });
  }

  /** The last ten, newest first. */
  @Get('dispatches')
  latest(): Promise<Dispatch[]> {
    return this.dataSource.manager.find(Dispatch, { order: { id: 'DESC' }, take: 10 });
  }
}
