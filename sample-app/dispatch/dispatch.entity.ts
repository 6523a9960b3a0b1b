import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/**
 * A job handed out for one of its ticks. Here a row is all that comes of it; in an application workers would take it from
 * here. An index on job and tick could refuse the second of two: there is none, so that the demonstration can count them.
 */
@Entity('dispatches')
export class Dispatch {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column({ type: 'varchar', length: 40 })
  job!: string;

  /** The planned instant. */
  @Column({ type: 'varchar', length: 30 })
  tick!: string;

  /** Which led. */
  @Column({ type: 'varchar', length: 40 })
  replica!: string;

  /** Not smaller than that of any row before. */
  @Column({ type: 'varchar', length: 20 })
  term!: string;
}
