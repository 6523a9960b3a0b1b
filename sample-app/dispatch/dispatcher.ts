import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import {
  type Candidate,
  LeaderElection,
  type LeaderInfo,
  type LeaderTerm,
  OnElected,
} from 'nestjs-distributed-lock';
import { fencedUpdate } from 'nestjs-distributed-lock/typeorm';
import { DataSource, IsNull, LessThanOrEqual, Not } from 'typeorm';
import { LEASE_MS } from '../locks/lock.options.js';
import { Settings } from '../settings/settings.js';
import { CrontabJob } from './crontab-job.entity.js';
import { Dispatch } from './dispatch.entity.js';
import { tickAfter } from './tick-after.js';

const POLL_MS = 100;

/**
 * Hands out the jobs of the crontab, in the one replica that leads. Where it stands is in the table, so the next leader
 * goes on from there: what was due while nobody led is late, but not left out.
 */
@Injectable()
export class Dispatcher {
  private readonly candidate: Candidate;

  constructor(
    private readonly dataSource: DataSource,
    private readonly settings: Settings,
    elections: LeaderElection,
  ) {
    // The decorator joins as the same candidate. Without this call, the lease would be the default of 15 s.
    this.candidate = elections.join('dispatcher', { leaseMs: LEASE_MS });
  }

  @OnElected('dispatcher')
  async dispatch({ number: term, signal }: LeaderTerm): Promise<void> {
    try {
      await this.fenceOffOlderTerms(term);
      while (!signal.aborted) {
        for (const job of await this.dueJobs()) await this.dispatchTick(job, term);
        await sleep(POLL_MS);
      }
    } catch (error) {
      // A replica that cannot dispatch must not stay leader.
      await this.candidate.resign();
      throw error;
    }
  }

  leader(): Promise<LeaderInfo | null> {
    return this.candidate.leader();
  }

  /**
   * In all jobs at once, before they are read: a leader that was paused for longer than its lease writes nothing when it
   * resumes.
   */
  private async fenceOffOlderTerms(term: bigint): Promise<void> {
    await fencedUpdate(this.dataSource, CrontabJob, { name: Not(IsNull()) }, {}, term);
  }

  private async dueJobs(): Promise<CrontabJob[]> {
    const now = new Date().toISOString();
    return this.dataSource.manager.findBy(CrontabJob, { nextTick: LessThanOrEqual(now) });
  }

  /** One tick; if more are due, the others follow at the next looks. */
  private async dispatchTick({ name, expression, nextTick: tick }: CrontabJob, term: bigint): Promise<void> {
    const nextTick = tickAfter(expression, new Date(tick));
    await this.dataSource.transaction(async (manager) => {
      // Throws if somebody leads with a newer term, so that it is no longer for us to hand out.
      await fencedUpdate(manager, CrontabJob, { name }, { nextTick }, term);
      await manager.insert(Dispatch, { job: name, tick, replica: this.settings.replica, term: String(term) });
    });
  }
}
