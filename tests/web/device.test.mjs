// Shaders and operations on the browser's own WebGPU.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PATIENCE, waitForAdapter, withBrowser } from './browser.mjs';

const browser = withBrowser();

test('the browser accepts every shader', { timeout: PATIENCE }, async () => {
  const page = await browser.open('blank');
  await waitForAdapter(page);
  const { names, faults } = await page.evaluate(async () => {
    const wasm = await import('/blueshift/wasm/blueshift.js');
    await wasm.default();
    const device = await (await navigator.gpu.requestAdapter()).requestDevice();
    const shaders = JSON.parse(wasm.shader_sources());
    const faults = [];
    for (const { name, source } of shaders) {
      const { messages } = await device.createShaderModule({ label: name, code: source }).getCompilationInfo();
      const errors = messages.filter((m) => m.type === 'error');
      faults.push(...errors.map((m) => `${name}:${m.lineNum}:${m.linePos}: ${m.message}`));
    }
    device.destroy();
    return { names: shaders.map((s) => s.name), faults };
  });
  console.log(`${names.length} shaders: ${names.join(', ')}`);
  assert.ok(names.length > 0);
  assert.deepEqual(faults, []);
  await page.close();
});

test('every operation gives the reference bits', { timeout: PATIENCE }, async () => {
  const page = await browser.open('blank');
  await waitForAdapter(page);
  const report = await page.evaluate(async () => {
    const wasm = await import('/blueshift/wasm/blueshift.js');
    await wasm.default();
    return JSON.parse(await wasm.run_case_tables());
  });
  console.log(JSON.stringify(report));
  assert.ok(report.cases > 0, 'no case was run');
  assert.deepEqual(report.failures, []);
  await page.close();
});
