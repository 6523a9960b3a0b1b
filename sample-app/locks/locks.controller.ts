import { Controller, Get, NotFoundException, Param } from '@nestjs/common';
import { LockService } from 'nestjs-distributed-lock';

/** Who holds a lock: for the curious, and for whoever is on call. */
@Controller('locks')
export class LocksController {
  constructor(private readonly locks: LockService) {}

  @Get(':key')
  async show(@Param('key') key: string) {
    const lock = await this.locks.inspect(key);
    if (!lock) throw new NotFoundException(`Nobody holds "${key}".`);
    return lock;
  }
}
