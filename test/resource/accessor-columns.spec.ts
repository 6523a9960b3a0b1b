import { describe, expect, it } from 'vitest';
import { Column, type DataSource, Entity, PrimaryColumn, VersionColumn } from 'typeorm';
import { optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Tagged {
  @PrimaryColumn('int')
  id!: number;

  #tags: string[] | null | undefined;

  @Column('simple-json', { nullable: true })
  get tags(): string[] {
    return (this.#tags ??= []);
  }

  set tags(tags: string[] | null) {
    this.#tags = tags;
  }

  @VersionColumn()
  version!: number;
}

describe.each(databases)('optimisticUpdate of a column that is an accessor on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Tagged], (opened) => (database = opened));

  it('writes what has changed within a value that the getter has created', async () => {
    const { manager } = database;
    await manager.insert(Tagged, { id: 1 });
    await optimisticUpdate(database, Tagged, { id: 1 }, (row) => void row.tags.push('new'));
    expect((await manager.findOneByOrFail(Tagged, { id: 1 })).tags).toEqual(['new']);
  });
});
