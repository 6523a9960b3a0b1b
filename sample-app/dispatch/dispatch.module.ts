import { Module } from '@nestjs/common';
import { DispatchController } from './dispatch.controller.js';
import { Dispatcher } from './dispatcher.js';

@Module({ controllers: [DispatchController], providers: [Dispatcher] })
export class DispatchModule {}
