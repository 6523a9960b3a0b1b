import { isDeepStrictEqual } from 'node:util';
import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { shown } from '../../../core/shown.js';
import type { ColumnMetadata } from './database.js';

/** A row as it was read, to tell later what has been changed in it, also deep inside of a JSON column. */
export class AsRead {
  /** Names the row as long as it has the version that was read. */
  readonly where: ObjectLiteral;
  readonly #dataSource: DataSource;
  readonly #metadata: EntityMetadata;
  readonly #row: ObjectLiteral;
  readonly #stored: ReadonlyMap<ColumnMetadata, unknown>;
  readonly #versionColumn: ColumnMetadata;
  readonly #version: unknown;

  /** @throws LockConfigError */
  constructor(dataSource: DataSource, metadata: EntityMetadata, row: ObjectLiteral) {
    this.#dataSource = dataSource;
    this.#metadata = metadata;
    this.#row = row;
    this.#versionColumn = versionColumnOf(metadata);
    const version: unknown = this.#versionColumn.getEntityValue(row);
    if (version === undefined || version === null) {
      throw new LockConfigError(
        `Expected the row of ${metadata.name} to have a version, got ${shown(version)}. Is its column NULL, or not selected?`,
      );
    }
    this.#version = version;
    this.where = { ...metadata.getEntityIdMap(row), ...this.#versionColumn.createValueMap(version) };
    this.#stored = new Map(metadata.columns.map((column) => [column, this.#asStored(column)]));
  }

  /** The properties that hold other values now. */
  changes(): ObjectLiteral {
    const changed = this.#metadata.columns.filter(
      (column) =>
        column.isUpdate &&
        column !== this.#versionColumn &&
        !isDeepStrictEqual(this.#asStored(column), this.#stored.get(column)),
    );
    return Object.fromEntries(changed.map((column) => this.#propertyOf(column)));
  }

  /** As the database has done. */
  countUp(): void {
    const read = this.#version;
    // A BIGINT comes as a text.
    const next = typeof read === 'number' ? read + 1 : String(BigInt(read as string) + 1n);
    this.#versionColumn.setEntityValue(this.#row, next);
  }

  #asStored(column: ColumnMetadata): unknown {
    const value: unknown = column.getEntityValue(this.#row);
    return structuredClone(this.#dataSource.driver.preparePersistentValue(value, column) as unknown);
  }

  /** All of an embedded object or a relation, where the column is a part of it. */
  #propertyOf(column: ColumnMetadata): [name: string, value: unknown] {
    const [name = ''] = column.propertyPath.split('.');
    return [name, this.#row[name]];
  }
}

/** @throws LockConfigError */
export function versionColumnOf({ name, versionColumn }: EntityMetadata): ColumnMetadata {
  if (versionColumn) return versionColumn;
  throw new LockConfigError(`Expected the entity ${name} to have a @VersionColumn(), got none.`);
}
