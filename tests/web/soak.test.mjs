// A short soak; soak.mjs runs long ones.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PATIENCE, withBrowser } from './browser.mjs';
import { faults, lateness, soak, writeMicro } from './soaking.mjs';

const browser = withBrowser();

test('a busy model neither leaks nor loses anybody', { timeout: PATIENCE }, async () => {
  const page = await browser.open('blank');
  const load = { backend: 'cpu', contextLength: 128, parallel: 8 };
  const figures = await soak(page, { model: writeMicro(), load, seconds: 20, open: 12, prompt: 60, answer: 24, seed: 1 });
  console.log(JSON.stringify(figures));
  assert.deepEqual(faults(figures), []);
  // What is wrong is seen.
  const late = { ...figures.late, wasmBytes: figures.late.wasmBytes + 1, device: { ...figures.late.device, bufferBytes: 1 } };
  assert.equal(faults({ ...figures, late, lost: 1, different: 1 }).length, 4);
  assert.equal(lateness({ gapMs: { p99: 3 }, longestStepMs: 2 }).length, 1);
  await page.close();
});
