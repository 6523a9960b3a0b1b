import { register } from 'node:module';
import process from 'node:process';

/** Lists what an entry point of the built package exports, where its code can import nothing but the given packages. */
const [entryPoint, packages] = process.argv.slice(2);
const onlyThese = `
  const packages = ${packages};
  export async function resolve(specifier, context, next) {
    const isOurs = context.parentURL?.includes('/dist/lib/');
    const isPackage = !specifier.startsWith('.') && !specifier.startsWith('node:');
    if (isOurs && isPackage && !packages.includes(specifier)) throw new Error('not installed: ' + specifier);
    return next(specifier, context);
  }`;
register(`data:text/javascript,${encodeURIComponent(onlyThese)}`);
process.stdout.write(JSON.stringify(Object.keys(await import(entryPoint)).sort()));
