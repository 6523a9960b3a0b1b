/** What `npm test` sets for the specs, once it has found or started the servers. */
export function serviceUrl(
  name:
    | 'TEST_REDIS_URL'
    | 'TEST_POSTGRES_URL'
    | 'TEST_MARIADB_URL'
    | 'TEST_ETCD_URL'
    | 'TEST_ZOOKEEPER_URL'
    | 'TEST_PGBOUNCER'
    | 'TEST_BETTER_SQLITE3'
    | 'TEST_CHROMIUM',
): string {
  const url = process.env[name];
  if (!url)
    throw new Error(
      `Expected ${name} to be set. Run the specs through 'npm test', which starts what is missing.`,
    );
  return url;
}
