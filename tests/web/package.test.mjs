// The npm package's API in a browser, on the CPU backend.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PATIENCE, withBrowser } from './browser.mjs';
import { smollm2 } from './places.mjs';

const browser = withBrowser();

/** Runs `body` in a fresh page as the body of an async function of (blueshift, url). */
async function inPage(body) {
  const page = await browser.open('blank');
  try {
    return await page.evaluate(body, `${browser.address}models/${smollm2}`);
  } finally {
    await page.close();
  }
}

/** Added to pages: the package and the model as a file picked by a user. */
const prelude = `
  const blueshift = await import('/blueshift/index.js');
  const fileOf = async (url) => new File([await (await fetch(url)).blob()], 'model.gguf');
  const outcome = (promise) => promise.then(() => 'resolved', (e) => (e instanceof blueshift.BlueshiftError ? e.code : e.name));
`;

function script(body) {
  return `(async (url) => { ${prelude} ${body} })`;
}

/** Runs a script, given as text, with the model's address. */
function evaluate(body) {
  return inPage(new Function('url', `return ${script(body)}(url)`));
}

const options = { timeout: PATIENCE };

test('a file loads, generates and reports', options, async () => {
  const got = await evaluate(`
    const seen = [];
    const model = await blueshift.load(await fileOf(url), { backend: 'cpu', onProgress: (p) => seen.push(p) });
    const generation = model.generate('The capital of France is', { raw: true, maxTokens: 4 });
    let text = '';
    for await (const piece of generation) text += piece;
    const again = await model.generate('The capital of France is', { raw: true, maxTokens: 4 }).result;
    const drawn = async (sampling) =>
      (await model.generate('The capital of France is', { raw: true, maxTokens: 2, ...sampling }).result).ids;
    const suppressed = await drawn({ suppress: [7042], topK: 5, topP: 0.9, minP: 0.01, temperature: 0.8 });
    const biased = await drawn({ logitBias: { 260: 100 }, presencePenalty: 1, frequencyPenalty: 1, repeatPenalty: 1.1 });
    const ids = [...(await model.tokenize('The capital of France is'))];
    const result = { text, ids, info: model.info, seen, suppressed, biased, first: await generation.result, again, streamed: generation.ids };
    model.dispose();
    return result;
  `);
  assert.match(got.text, /^ Paris/);
  assert.equal(got.first.text, got.text);
  assert.equal(got.again.text, got.text);
  assert.deepEqual(got.streamed, got.first.ids);
  assert.equal(got.first.ids[0], 7042);
  assert.ok(got.suppressed.length === 2 && !got.suppressed.includes(7042));
  assert.deepEqual(got.biased, [260, 260]);
  assert.equal(got.first.stopReason, 'max_tokens');
  assert.equal(got.first.timings.promptTokens, got.ids.length);
  assert.equal(got.info.backend, 'cpu');
  assert.equal(got.info.architecture, 'llama');
  assert.equal(got.info.vocabularySize, 49152);
  assert.equal(got.seen.at(-1).bytes, got.seen.at(-1).total);
});

for (const backend of ['cpu', 'wgpu']) {
  test(`a model on ${backend} tells where its time goes`, options, async () => {
    const got = await evaluate(`
      for (let tries = 0; tries < 30 && !(await navigator.gpu?.requestAdapter()); tries++) await new Promise((r) => setTimeout(r, 200));
      const model = await blueshift.load(url, { backend: '${backend}', contextLength: 64 });
      const profile = await model.profile({ promptTokens: 4, tokens: 3 });
      const { text } = await model.generate('The capital of France is', { raw: true, maxTokens: 1 }).result;
      const refused = await Promise.all([{ tokens: 1 }, { promptTokens: 0 }, { tokens: 1.5 }].map((o) => outcome(model.profile(o))));
      return { profile, text, refused, aborted: await outcome(model.profile({ signal: AbortSignal.abort() })) };
    `);
    const { profile } = got;
    console.log(`${backend}: by ${profile.method}, ratio ${profile.ratio}`);
    assert.ok(backend === 'cpu' ? profile.method === 'clock' : profile.method !== 'clock', profile.method);
    const decode = profile.ops.filter((op) => op.phase === 'decode');
    const count = (start) => decode.filter((op) => op.label.startsWith(start)).map((op) => op.count);
    // Two tokens after the first, 30 layers.
    assert.equal(profile.tokens, 2);
    for (const label of ['rope_append ', 'attention ', 'gated_activation ', 'matmul ffn_down ', 'matmul attn_output ']) {
      assert.deepEqual(count(label), [60], label);
    }
    assert.deepEqual(count('embed '), [2]);
    assert.equal(profile.layers.filter((layer) => layer.phase === 'decode').length, 30);
    const sum = profile.ops.reduce((sum, op) => sum + op.totalMs, 0);
    assert.ok(Math.abs(sum - profile.sumOfOpsMs) <= 1e-6 * sum, `${sum} is not ${profile.sumOfOpsMs}`);
    assert.equal(got.text, ' Paris');
    assert.deepEqual([got.refused, got.aborted], [Array(3).fill('BadArgument'), 'AbortError']);
  });
}

test('aborting a load rejects with the reason of the signal', options, async () => {
  const got = await evaluate(`
    const controller = new AbortController();
    const load = blueshift.load(url, { backend: 'cpu', signal: controller.signal, onProgress: () => controller.abort() });
    return [await outcome(load), await outcome(blueshift.load(url, { signal: AbortSignal.abort() }))];
  `);
  assert.deepEqual(got, ['AbortError', 'AbortError']);
});

test('aborting a generation leaves the model usable', options, async () => {
  const got = await evaluate(`
    const model = await blueshift.load(url, { backend: 'cpu' });
    const controller = new AbortController();
    const generation = model.generate('Count to one thousand.', { maxTokens: 400, signal: controller.signal });
    let pieces = 0;
    const read = (async () => { for await (const _ of generation) if (++pieces === 2) controller.abort(); })();
    const aborted = [await outcome(read), await outcome(generation.result)];
    const left = model.generate('Count to one thousand.', { maxTokens: 400 });
    for await (const _ of left) break;
    const next = await model.generate('The capital of France is', { raw: true, maxTokens: 1 }).result;
    return { aborted, left: await outcome(left.result), pieces, next: next.text };
  `);
  assert.deepEqual(got, { aborted: ['AbortError', 'AbortError'], left: 'Cancelled', pieces: 2, next: ' Paris' });
});

test('dispose rejects what is pending and what follows', options, async () => {
  const got = await evaluate(`
    const model = await blueshift.load(url, { backend: 'cpu' });
    const pending = outcome(model.generate('Tell a long story.', { maxTokens: 400 }).result);
    model.dispose();
    model.dispose();
    return [await pending, await outcome(model.tokenize('a')), await outcome(model.generate('a').result)];
  `);
  assert.deepEqual(got, ['Disposed', 'Disposed', 'Disposed']);
});

test('what cannot be loaded or asked is refused with a code', options, async () => {
  const got = await evaluate(`
    const failure = (promise) => promise.then(() => null, (e) => ({ name: e.name, code: e.code, text: e.message }));
    const model = await blueshift.load(url, { backend: 'cpu', contextLength: 64 });
    const thrown = (f) => { try { f(); return null; } catch (e) { return e.code; } };
    return {
      notGguf: await failure(blueshift.load(new Blob(['this is no model, only a sentence']))),
      missing: await failure(blueshift.load('/models/none.gguf', { backend: 'cpu' })),
      long: await failure(model.generate('word '.repeat(200), { raw: true }).result),
      topP: await failure(model.generate('a', { raw: true, topP: 1e-60 }).result),
      refused: [
        { maxTokens: 0 }, { maxTokens: 2 ** 32 }, { maxTokens: 1.5 }, { seed: -1 }, { seed: 2 ** 53 }, { temperature: NaN },
        { temperature: Infinity }, { temperature: -1 }, { temperature: '1' }, { stop: 3 }, { stop: [''] }, { stop: [1] },
        { topK: 0.5 }, { topP: 2 }, { minP: NaN }, { repeatPenalty: 0 }, { logitBias: { x: 1 } }, { logitBias: { 1: 1e9 } },
        { suppress: [-1] }, { suppress: 1 },
      ].map((options) => thrown(() => model.generate('a', options))),
      accepted: await outcome(model.generate('a', { maxTokens: 1, stop: 'zz' }).result),
      contextLength: await outcome(blueshift.load(url, { contextLength: 2 ** 32 })),
      address: await outcome(blueshift.load('http://:x/')),
      backend: await outcome(blueshift.load(url, { backend: 'gpu' })),
      unsendable: await outcome(model.generate([{ role: 'user', content: 'a', extra: () => {} }]).result),
      after: await outcome(model.tokenize('a')),
      rawMessages: thrown(() => model.generate([{ role: 'user', content: 'a' }], { raw: true })),
    };
  `);
  assert.equal(got.notGguf.name, 'BlueshiftError');
  assert.equal(got.notGguf.code, 'NotGguf');
  assert.equal(got.missing.code, 'Http');
  assert.equal(got.long.code, 'ContextFull');
  assert.equal(got.topP.code, 'BadOption');
  assert.deepEqual(got.refused, got.refused.map(() => 'BadArgument'));
  assert.equal(got.accepted, 'resolved');
  assert.deepEqual([got.contextLength, got.address, got.backend, got.unsendable], Array(4).fill('BadArgument'));
  assert.equal(got.after, 'resolved');
  assert.equal(got.rawMessages, 'BadArgument');
});

test('a worker of the page loads by an address relative to its own', options, async () => {
  const page = await browser.open('blank');
  const body = "import { load } from './index.js'; load('../models/none.gguf').catch((error) => postMessage(error.message));";
  await page.route('**/own-worker.js', (route) => route.fulfill({ contentType: 'text/javascript', body }));
  const message = await page.evaluate(() => {
    const worker = new Worker('/blueshift/own-worker.js', { type: 'module' });
    return new Promise((resolve) => (worker.onmessage = ({ data }) => resolve(data)));
  });
  assert.ok(message.includes(`${browser.address}models/none.gguf`), message);
  await page.close();
});

test('a worker that cannot start rejects the load', options, async () => {
  const page = await browser.open('blank');
  await page.route('**/worker.js', (route) => route.fulfill({ status: 404 }));
  const code = await page.evaluate(async (url) => {
    const blueshift = await import('/blueshift/index.js');
    return blueshift.load(url).then(() => 'resolved', (error) => error.code);
  }, `${browser.address}models/${smollm2}`);
  assert.equal(code, 'WorkerCrashed');
  await page.close();
});
