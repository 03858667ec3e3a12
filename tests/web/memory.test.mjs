// The weights pass through wasm memory, they do not stay in it.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PATIENCE, waitForAdapter, withBrowser } from './browser.mjs';
import { smollm2 } from './places.mjs';

const MOST_BYTES = 64 << 20;
const browser = withBrowser();

test('loading onto the GPU keeps wasm memory small', { timeout: PATIENCE }, async () => {
  const page = await browser.open('blank');
  await waitForAdapter(page);
  // Wasm memory only grows, so its size after the load is its peak.
  const bytes = await page.evaluate(async (url) => {
    const wasm = await import('/blueshift/wasm/blueshift.js');
    const { memory } = await wasm.default();
    const options = JSON.stringify({ backend: 'wgpu', contextLength: 512, parallel: 1, cacheBytes: null, kv: 'f16' });
    const model = await wasm.Model.from_url(url, options, () => {});
    const bytes = memory.buffer.byteLength;
    model.free();
    return bytes;
  }, `${browser.address}models/${smollm2}`);
  console.log(`peak wasm memory: ${(bytes / (1 << 20)).toFixed(1)} MiB`);
  assert.ok(bytes <= MOST_BYTES, `${bytes} bytes, expected at most ${MOST_BYTES}`);
  await page.close();
});
