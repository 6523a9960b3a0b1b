import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';

/** Files of a certificate authority, and of a certificate that it has signed for the loopback address. */
export interface Certificates {
  readonly caFile: string;
  readonly certificateFile: string;
  readonly keyFile: string;
  readonly ca: Buffer;
  readonly certificate: Buffer;
  readonly key: Buffer;
}

/** Makes them in a folder, with the program `openssl`. */
export async function createCertificates(folder: string): Promise<Certificates> {
  const inFolder = (name: string) => join(folder, name);
  const [caFile, caKeyFile, certificateFile, keyFile, requestFile] = [
    ...['ca.pem', 'ca-key.pem', 'certificate.pem', 'key.pem', 'request.pem'].map(inFolder),
  ] as [string, string, string, string, string];
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  const names = ['-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost'];
  const openssl = (...args: string[]) => execa('openssl', args);
  await openssl('req', '-x509', ...newKey, '-subj', '/CN=test-ca', '-keyout', caKeyFile, '-out', caFile);
  await openssl('req', ...newKey, '-subj', '/CN=test', ...names, '-keyout', keyFile, '-out', requestFile);
  const authority = ['-CA', caFile, '-CAkey', caKeyFile, '-CAcreateserial', '-copy_extensions', 'copy'];
  await openssl('x509', '-req', '-in', requestFile, ...authority, '-out', certificateFile);
  const [ca, certificate, key] = await Promise.all(
    [caFile, certificateFile, keyFile].map((file) => readFile(file)),
  );
  return { caFile, certificateFile, keyFile, ca, certificate, key } as Certificates;
}
