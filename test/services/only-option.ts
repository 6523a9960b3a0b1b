import { InvalidArgumentError, Option } from 'commander';
import { type ServiceName, serviceNames } from './open-services.js';

/** The option `--only redis,postgres`; without it all services are meant. */
export function onlyOption(): Option {
  return new Option('--only <names>', `some of ${serviceNames.join(',')}`)
    .default(serviceNames)
    .argParser(parseNames);
}

function parseNames(text: string): ServiceName[] {
  return text.split(',').map((word) => {
    const name = serviceNames.find((known) => known === word);
    if (name) return name;
    throw new InvalidArgumentError(`Expected some of ${serviceNames.join(',')}, but got "${word}".`);
  });
}
