import type { ResultSetHeader } from 'mysql2/promise';
import type { Contender } from '../contender.js';
import { newOwner, poll } from './polling.js';

const POOL_SIZE = 10;

const TABLE = `
CREATE TABLE IF NOT EXISTS plain (\`key\` varchar(255) PRIMARY KEY, owner varchar(64) NOT NULL,
  expires_at bigint NOT NULL, version bigint NOT NULL DEFAULT 1)`;

// In: key, owner, its end, then three times now. Out: 0 rows affected if it is taken. Columns change in the order written.
const ACQUIRE = `
INSERT INTO plain (\`key\`, owner, expires_at) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE owner = IF(expires_at <= ?, VALUES(owner), owner),
  version = IF(expires_at <= ?, version + 1, version),
  expires_at = IF(expires_at <= ?, VALUES(expires_at), expires_at)`;

const RELEASE = 'UPDATE plain SET expires_at = 0 WHERE `key` = ? AND owner = ?';

export const all: readonly Contender[] = [
  {
    name: 'plain mysql2',
    store: 'mariadb',
    kind: 'floor',
    async open({ leaseMs, waitMs, stores }) {
      const { createPool } = await import('mysql2/promise');
      const uri = stores.mariadb.replace(/^mariadb:/, 'mysql:');
      // With FOUND_ROWS, a row that was left as it is would count as affected.
      const pool = createPool({ uri, connectionLimit: POOL_SIZE, flags: ['-FOUND_ROWS'] });
      await Promise.all(Array.from({ length: POOL_SIZE }, () => pool.query('SELECT SLEEP(0.01)')));
      await pool.query(TABLE);
      const owner = newOwner();
      return {
        acquire: (key) =>
          poll(async () => {
            const [me, now] = [owner(), Date.now()];
            const [header] = await pool.execute(ACQUIRE, [key, me, now + leaseMs, now, now, now]);
            if ((header as ResultSetHeader).affectedRows === 0) return undefined;
            return { release: () => pool.execute(RELEASE, [key, me]) };
          }, waitMs),
        close: () => pool.end(),
      };
    },
  },
];
