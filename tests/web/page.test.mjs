// The demo page from the address bar to an answer.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

import { PATIENCE, waitForAdapter, withBrowser } from './browser.mjs';
import { startOwnServer } from './own-server.mjs';
import { commandLine, models, smollm2 } from './places.mjs';

const PROMPT = 'What is the capital of France?';
const N_TOKENS = 16;
const browser = withBrowser(startOwnServer);

/** What the native program writes on its CPU backend. */
function referenceText(...options) {
  const args = ['run', join(models, smollm2), '-p', PROMPT, '-n', String(N_TOKENS), '--backend', 'cpu', '--json', ...options];
  const lines = execFileSync(commandLine, args, { encoding: 'utf8' }).trim().split('\n');
  return JSON.parse(lines.at(-1)).text;
}

async function chat(page) {
  await page.fill('#max-tokens', String(N_TOKENS));
  await page.fill('#prompt', PROMPT);
  await watchAnswer(page);
  await page.click('#send');
  await page.waitForSelector('#output:not(.writing)', { state: 'attached' });
  assert.doesNotMatch(await page.getAttribute('#status', 'class') ?? '', /error/, await page.textContent('#status'));
  return page.textContent('#output');
}

/** Collects in the page the lengths that the answer passes through. */
function watchAnswer(page) {
  return page.evaluate(() => {
    const lengths = (globalThis.answerLengths = new Set());
    const note = () => lengths.add(document.querySelector('#output.writing')?.textContent.length ?? 0);
    new MutationObserver(note).observe(document.getElementById('messages'), { childList: true, subtree: true, characterData: true });
  });
}

for (const backend of ['cpu', 'wgpu']) {
  test(`the page on ${backend} writes what the command line writes`, { timeout: PATIENCE }, async () => {
    const page = await browser.open('');
    if (backend === 'wgpu') await waitForAdapter(page);
    await page.goto(`${browser.address}?model=models/${smollm2}&backend=${backend}`);
    await page.waitForSelector('#prompt, #status.error', { state: 'visible' });
    assert.ok(await page.isVisible('#prompt'), await page.textContent('#status'));
    assert.equal(await page.getAttribute('#backend', 'data-value'), backend);
    assert.equal(await page.getAttribute('#selftest', 'data-value'), 'passed');
    assert.notEqual(await page.textContent('#adapter'), '');
    await page.evaluate(() => (document.getElementById('settings').open = true));
    assert.equal(await chat(page), referenceText());
    const lengths = await page.evaluate(() => [...globalThis.answerLengths].filter((length) => length > 0));
    assert.ok(lengths.length > 2, `the answer came in ${lengths.length} steps, expected more than 2`);
    if (backend === 'wgpu') assert.ok(await page.isHidden('#notice'), await page.textContent('#notice'));
    assert.match(await page.textContent('#tps'), /tokens\/s$/);
    assert.match(await page.textContent('#ttft'), /s$/);
    await page.close();
  });
}

test('the settings are those of the command line', { timeout: PATIENCE }, async () => {
  const page = await browser.open(`?model=models/${smollm2}&backend=cpu`);
  await page.waitForSelector('#prompt', { state: 'visible' });
  await page.click('#settings summary');
  const chosen = { temperature: '1.2', 'top-k': '50', 'top-p': '0.9', 'min-p': '0.01', 'typical-p': '0.8', 'repeat-penalty': '1.1', seed: '11' };
  for (const [id, value] of Object.entries(chosen)) await page.fill(`#${id}`, value);
  assert.equal(await page.textContent('#temperature-value'), '1.2');
  const { temperature, ...named } = chosen;
  const options = Object.entries({ temp: temperature, ...named }).flatMap(([name, value]) => [`--${name}`, value]);
  assert.equal(await chat(page), referenceText(...options));
  await page.click('#new-chat');
  await page.fill('#top-p', '3');
  await page.fill('#prompt', PROMPT);
  await page.click('#send');
  await page.waitForSelector('#status.error');
  assert.match(await page.textContent('#status'), /topP is 3, expected a number above 0, at most 1/);
  assert.equal(await page.inputValue('#prompt'), PROMPT);
  await page.close();
});

test('the page shows where the time goes', { timeout: PATIENCE }, async () => {
  const page = await browser.open(`?model=models/${smollm2}&backend=cpu`);
  await page.waitForSelector('#prompt', { state: 'visible' });
  await page.evaluate(() => (document.getElementById('profile').open = true));
  assert.ok(await page.isHidden('#profile-table'));
  await page.evaluate(() => (navigator.clipboard.writeText = async (text) => void (globalThis.copied = text)));
  await page.click('#profile-run');
  await page.waitForSelector('#profile-table', { state: 'visible' });
  const phases = await page.$$eval('#profile-table tbody', (parts) => parts.map((part) => part.dataset.phase));
  assert.deepEqual(phases, ['prefill', 'decode']);
  const rows = await page.$$eval('#profile-table tbody[data-phase=decode] tr', (lines) => lines.map((l) => l.innerText.split('\t')));
  const down = rows.find(([label]) => label.startsWith('matmul ffn_down q4_1 576x1536'));
  assert.equal(down[1], String(30 * 15));
  assert.match(down[4], /%$/);
  await page.click('#profile-copy');
  const copied = JSON.parse(await page.evaluate(() => globalThis.copied));
  assert.equal(copied.ops.length, (await page.$$('#profile-table td:first-child')).length);
  assert.match(await page.textContent('#profile-note'), /decode: 15 tokens/);
  await page.close();
});

test('a file that is no model is refused in plain words', { timeout: PATIENCE }, async () => {
  const page = await browser.open('');
  await page.setInputFiles('#file', { name: 'x.gguf', mimeType: '', buffer: Buffer.from('this is no model at all') });
  await page.waitForSelector('#status.error');
  assert.match(await page.textContent('#status'), /not a GGUF file/);
  assert.ok(await page.isVisible('#picker'));
  // The same file once more is read once more.
  await page.evaluate(() => (document.getElementById('status').className = ''));
  await page.setInputFiles('#file', { name: 'x.gguf', mimeType: '', buffer: Buffer.from('this is no model at all') });
  await page.waitForSelector('#status.error');
  await page.close();
});

test('an address with a bare percent sign is asked for', { timeout: PATIENCE }, async () => {
  const page = await browser.open('?model=models/100%25.gguf&backend=cpu');
  await page.waitForSelector('#status.error');
  assert.match(await page.textContent('#status'), /could not be downloaded/);
  await page.close();
});

test('no step needs eval or another origin', { timeout: PATIENCE }, async () => {
  const page = await browser.open('');
  const asked = [];
  page.on('request', (request) => asked.push(request.url()));
  await page.reload();
  await page.waitForLoadState('networkidle');
  assert.deepEqual(asked.filter((url) => !url.startsWith(browser.address)), []);
  assert.equal(await page.evaluate(() => globalThis.crossOriginIsolated), false);
  await page.close();
});
