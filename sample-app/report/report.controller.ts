import { Controller, Get } from '@nestjs/common';
import { DataSource } from 'typeorm';
import { Report } from './report.entity.js';

@Controller('reports')
export class ReportController {
  constructor(private readonly dataSource: DataSource) {}

  /** The last ten, newest first. */
  @Get()
  latest(): Promise<Report[]> {
    return this.dataSource.manager.find(Report, { order: { id: 'DESC' }, take: 10 });
  }
}
