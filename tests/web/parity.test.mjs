// What the page's backends answer is what the command line's cpu backend answers, bit for bit.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { PATIENCE } from './browser.mjs';
import { askEngine } from './engine.mjs';
import { commandLine, models, smollm2 } from './places.mjs';

const PROMPTS = ['The sky is', 'One, two, three,'];
const TOKENS = 3;

/** The answers of the command line. */
function expected() {
  const folder = mkdtempSync(join(tmpdir(), 'blueshift-'));
  try {
    const file = join(folder, 'prompts.txt');
    writeFileSync(file, PROMPTS.join('\n'));
    const args = ['parity', join(models, smollm2), '--backend', 'cpu', '--prompts', file, '--tokens', TOKENS];
    return JSON.parse(execFileSync(commandLine, args)).answers;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('logits and ids are those of the command line', { timeout: PATIENCE }, async () => {
  const wanted = expected();
  assert.equal(wanted.length, PROMPTS.length);
  assert.notEqual(wanted[0].logits, wanted[1].logits);
  for (const backend of ['cpu', 'wgpu']) {
    const options = { prompts: PROMPTS, tokens: TOKENS };
    const report = await askEngine({ model: smollm2, adapter: 'sw', backend, contextLength: 128, method: 'parity', options });
    assert.deepEqual(report.answers, wanted, backend);
  }
});
