import { randomUUID } from 'node:crypto';
import { mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { tempFolder } from '../support/temp-folder.js';
import { ends, openBoard, openScene, rowOf, startReplicas, useBrowser } from './scene.js';

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });
useBrowser();

/** `BOARD_PICTURES=docs/board` replaces the pictures of the documents. */
const folder = process.env['BOARD_PICTURES'] ?? tempFolder();
const WIDTHS = { desktop: 1_440, tablet: 900, phone: 390 };
const MAX_BYTES = 150_000;

it('looks well at three widths in both colour schemes: no scroll bar, no overlap, small pictures', async () => {
  const namespace = `shop-${randomUUID().slice(0, 4)}`;
  const replicas = await startReplicas({ adapter: 'Express' }, { namespace });
  ends.push(replicas.stop);
  const { url, others, hold } = await openScene(replicas);
  const keys = ['order:42', 'order:43', 'invoice:2026-11', 'report:daily', 'import:customers', 'mail:digest'];
  for (const key of keys) await hold(key);
  const leaving = new AbortController();
  const waiting = others
    .acquire('order:42', { waitMs: 120_000, signal: leaving.signal })
    .catch(() => undefined);
  await mkdir(folder, { recursive: true });
  for (const colorScheme of ['light', 'dark'] as const) {
    for (const [name, width] of Object.entries(WIDTHS)) {
      const page = await openBoard(url, { colorScheme, viewport: { width, height: 640 } });
      await rowOf(page, 'order:42').locator('.waiting', { hasText: '1' }).waitFor();
      await page.locator('#jobs tbody tr', { hasText: 'nightly' }).waitFor();
      if (colorScheme === 'light' && name === 'desktop') {
        for (const job of ['nightly', 'send-reports']) {
          await page.getByRole('button', { name: `Run now ${job}` }).click();
          await page.getByRole('button', { name: 'Run it now' }).click();
          await page.getByText('The job runs on').waitFor();
          await page.locator('#message').waitFor({ state: 'hidden' });
        }
        await page.getByRole('button', { name: 'Pause cleanup' }).click();
        await page.getByRole('button', { name: 'Pause the job' }).click();
        await page.getByText('The job is paused.').waitFor();
        await page.locator('#message').waitFor({ state: 'hidden' });
      }
      await page.locator('#jobs tbody tr', { hasText: 'paused' }).waitFor();
      const path = join(folder, `${name}-${colorScheme}.png`);
      await page.screenshot({ path, fullPage: true });
      expect((await stat(path)).size).toBeLessThan(MAX_BYTES);
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
      await page.context().close();
    }
  }
  leaving.abort();
  await waiting;
});
