import { Module } from '@nestjs/common';
import { ReportController } from './report.controller.js';
import { ReportJob } from './report.job.js';

@Module({ controllers: [ReportController], providers: [ReportJob] })
export class ReportModule {}
