import { StorageDriver, initializeTransactionalContext } from 'typeorm-transactional';
import { byTypeormTransactional, describeFirstHelper } from './transactional.js';

initializeTransactionalContext({ storageDriver: StorageDriver.CLS_HOOKED });
describeFirstHelper(byTypeormTransactional);
