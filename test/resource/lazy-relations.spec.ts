import { describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  DeleteDateColumn,
  Entity,
  JoinColumn,
  ManyToOne,
  PrimaryColumn,
  VersionColumn,
} from 'typeorm';
import { optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Owner {
  @PrimaryColumn('int')
  id!: number;

  @DeleteDateColumn()
  deletedAt!: Date | null;
}

@Entity()
class Doc {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 20, default: 'old' })
  title!: string;

  @ManyToOne(() => Owner, { lazy: true, nullable: true, createForeignKeyConstraints: false })
  owner!: Promise<Owner | null>;

  @Column({ type: 'int', nullable: true })
  editorId!: number | null;

  @ManyToOne(() => Owner, { lazy: true, nullable: true, createForeignKeyConstraints: false })
  @JoinColumn({ name: 'editorId' })
  editor!: Promise<Owner | null>;

  @VersionColumn()
  version!: number;
}

describe.each(databases)('optimisticUpdate of a row with lazy relations on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Owner, Doc], (opened) => (database = opened));

  let nextId = 0;
  /** A row whose owner and editor are deleted softly, so that its relations load as null. */
  const newDoc = async (): Promise<number> => {
    nextId += 2;
    const [id, other] = [nextId, nextId + 1];
    const { manager } = database;
    await manager.insert(Owner, [{ id }, { id: other }]);
    await manager.softDelete(Owner, { id });
    await manager.insert(Doc, { id, owner: { id } as never, editorId: id });
    return id;
  };
  const read = async (id: number) => {
    const doc = await database.manager.findOneOrFail(Doc, {
      ...{ where: { id }, withDeleted: true, relations: { owner: true } },
    });
    const owner = await doc.owner;
    return { title: doc.title, version: doc.version, ownerId: owner?.id ?? null, editorId: doc.editorId };
  };

  it('sends no query for them', async () => {
    const id = await newDoc();
    const { logger } = database;
    const sent: string[] = [];
    const logQuery = (query: string) => void sent.push(query);
    database.logger = Object.create(logger, { logQuery: { value: logQuery } }) as typeof logger;
    await optimisticUpdate(database, Doc, { id }, (doc) => void (doc.title = 'new'));
    database.logger = logger;
    expect(sent.some((query) => query.startsWith('UPDATE'))).toBe(true);
    expect(sent.filter((query) => query.includes('JOIN'))).toEqual([]);
  });

  it('keeps what the change has only read', async () => {
    const id = await newDoc();
    await optimisticUpdate(database, Doc, { id }, async (doc) => {
      expect([await doc.owner, await doc.editor]).toEqual([null, null]);
      doc.title = 'new';
    });
    expect(await read(id)).toEqual({ title: 'new', version: 2, ownerId: id, editorId: id });
  });

  it('writes nothing if the change has only read', async () => {
    const id = await newDoc();
    await optimisticUpdate(database, Doc, { id }, async (doc) => {
      await doc.owner;
    });
    expect(await read(id)).toEqual({ title: 'old', version: 1, ownerId: id, editorId: id });
  });

  it('writes what was assigned', async () => {
    const id = await newDoc();
    const other = await database.manager.findOneByOrFail(Owner, { id: id + 1 });
    await optimisticUpdate(database, Doc, { id }, async (doc) => {
      await doc.owner;
      doc.owner = Promise.resolve(other);
      doc.editor = Promise.resolve(other);
    });
    expect(await read(id)).toMatchObject({ ownerId: other.id, editorId: other.id });
    await optimisticUpdate(database, Doc, { id }, (doc) => {
      doc.title = 'without'; // libsql fails at null as the first parameter.
      doc.owner = Promise.resolve(null);
    });
    expect(await read(id)).toMatchObject({ ownerId: null, editorId: other.id });
  });

  it('writes what was merged', async () => {
    const id = await newDoc();
    const repository = database.getRepository(Doc);
    const other = await database.manager.findOneByOrFail(Owner, { id: id + 1 });
    await optimisticUpdate(database, Doc, { id }, (doc) => {
      repository.merge(doc, repository.create({ owner: other as never }));
    });
    expect(await read(id)).toMatchObject({ ownerId: other.id, editorId: id });
  });

  it('refuses a copy in which the column of a lazy relation has changed', async () => {
    const id = await newDoc();
    const copy = optimisticUpdate(database, Doc, { id }, ({ title, version }) =>
      Object.assign(new Doc(), { id, title, version, editorId: id + 1 }),
    );
    await expect(copy).rejects.toThrow('another editorId');
  });

  it('writes the column of a relation that was only read', async () => {
    const id = await newDoc();
    await optimisticUpdate(database, Doc, { id }, async (doc) => {
      await doc.editor;
      doc.editorId = id + 1;
    });
    expect(await read(id)).toMatchObject({ ownerId: id, editorId: id + 1 });
  });
});
