import { FencingToken } from 'nestjs-distributed-lock/typeorm';
import { Column, Entity, PrimaryColumn } from 'typeorm';

/** A job that is due again and again. */
@Entity('crontab')
export class CrontabJob {
  @PrimaryColumn({ type: 'varchar', length: 40 })
  name!: string;

  /** A cron expression, in UTC. */
  @Column({ type: 'varchar', length: 40 })
  expression!: string;

  /** The first instant that nobody has dispatched yet, perhaps long past. */
  @Column({ type: 'varchar', length: 30 })
  nextTick!: string;

  /** Of the leader who wrote here last. */
  @FencingToken()
  term?: bigint;
}
