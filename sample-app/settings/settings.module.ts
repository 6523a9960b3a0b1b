import { Global, Module } from '@nestjs/common';
import { Settings } from './settings.js';

@Global()
@Module({
  providers: [{ provide: Settings, useFactory: () => new Settings(process.env) }],
  exports: [Settings],
})
export class SettingsModule {}
