// The npm package's API in a browser, on the CPU backend.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

import { PATIENCE, waitForAdapter, withBrowser } from './browser.mjs';
import { commandLine, dist, models, smollm2 } from './places.mjs';

const browser = withBrowser();

/** Runs `body` in a fresh page, once it is ready, as the body of an async function of (blueshift, url). */
async function inPage(body, ready) {
  const page = await browser.open('blank');
  try {
    await ready?.(page);
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
function evaluate(body, ready) {
  return inPage(new Function('url', `return ${script(body)}(url)`), ready);
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

const PROMPT = 'The capital of France is';

/** What the command line answers on its CPU backend. */
function reference(nTokens, args) {
  const common = ['run', join(models, smollm2), '-p', PROMPT, '--raw', '-n', String(nTokens), '--backend', 'cpu', '--json'];
  return JSON.parse(execFileSync(commandLine, [...common, ...args], { encoding: 'utf8' }).trim().split('\n').at(-1));
}

/** Options of a generation, the same ones of the command line, and what else holds for its result. */
const samplings = [
  [{ temperature: 0.9, seed: 7, typicalP: 0.3 }, ['--temp', '0.9', '--seed', '7', '--typical-p', '0.3'], () => {}],
  [{}, [], () => {}],
  [
    { temperature: 1.3, seed: 2 ** 40, topK: 60, topP: 0.9, minP: 0.001, repeatPenalty: 1.2, frequencyPenalty: 0.3, presencePenalty: 0.2, penaltyWindow: 9 },
    ['--temp', '1.3', '--seed', String(2 ** 40), '--top-k', '60', '--top-p', '0.9', '--min-p', '0.001', '--repeat-penalty', '1.2'].concat(
      ['--frequency-penalty', '0.3', '--presence-penalty', '0.2', '--penalty-window', '9'],
    ),
    () => {},
  ],
  [{ stopIds: [198], burst: 2, inFlight: 2 }, ['--stop-id', '198'], ({ stats }) => assert.equal(stats.longestBurst, 2)],
  [{ stop: ['States', ' United S'] }, ['--stop', 'States', '--stop', ' United S'], ({ stopReason }) => assert.equal(stopReason, 'stop_string')],
];

for (const [backend, maxTokens, tried] of [['cpu', 8, samplings], ['wgpu', 3, samplings.slice(0, 1)]]) {
  test(`draws, log-probabilities and stops on ${backend} are those of the command line`, options, async () => {
    const common = { raw: true, maxTokens };
    const got = await evaluate(
      `
      const model = await blueshift.load(url, { backend: '${backend}' });
      const results = [];
      for (const sampling of ${JSON.stringify(tried.map(([sampling]) => ({ ...common, ...sampling })))}) {
        const plain = await model.generate('${PROMPT}', sampling).result;
        const generation = model.generate('${PROMPT}', { topLogprobs: 3, ...sampling });
        const seen = [];
        for await (const _ of generation) seen.push(generation.ids.length === generation.logprobs.length);
        results.push({ plain, listed: await generation.result, streamed: generation.logprobs, seen });
      }
      const bare = await model.generate('${PROMPT}', { raw: true, maxTokens: 1, logprobs: true }).result;
      return { results, bare };
    `,
      backend === 'wgpu' ? waitForAdapter : undefined,
    );
    for (const [i, [, args, check]] of tried.entries()) {
      const { plain, listed, streamed, seen } = got.results[i];
      const wanted = reference(maxTokens, [...args, '--logprobs', '3']);
      for (const result of [plain, listed]) {
        assert.deepEqual(result.ids, wanted.ids, args.join(' '));
        assert.equal(result.text, wanted.text);
        assert.equal(result.stopReason, wanted.stop_reason);
        assert.ok(result.stats.bursts >= 1 && result.stats.longestBurst >= 1 && result.stats.deepest >= 1, JSON.stringify(result.stats));
        assert.equal(result.fallback, null);
      }
      check(plain);
      assert.equal(plain.logprobs, undefined);
      assert.deepEqual(listed.logprobs, wanted.ids.map((id, n) => ({ id, ...wanted.logprobs[n] })));
      assert.deepEqual(streamed, listed.logprobs);
      assert.ok(seen.length > 0 && seen.every(Boolean));
    }
    assert.deepEqual(got.bare.logprobs.map(({ top }) => top), [[]]);
  });
}

for (const backend of ['cpu', 'wgpu']) {
  test(`a model on ${backend} tells where its time goes`, options, async () => {
    const got = await evaluate(`
      for (let tries = 0; tries < 30 && !(await navigator.gpu?.requestAdapter()); tries++) await new Promise((r) => setTimeout(r, 200));
      const model = await blueshift.load(url, { backend: '${backend}', contextLength: 64 });
      const profile = await model.profile({ promptTokens: 4, tokens: 3 });
      const { text } = await model.generate('The capital of France is', { raw: true, maxTokens: 1 }).result;
      const refused = await Promise.all([{ tokens: 1 }, { promptTokens: 0 }, { tokens: 1.5 }, { nTokens: 3 }].map((o) => outcome(model.profile(o))));
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
    assert.deepEqual([got.refused, got.aborted], [Array(4).fill('BadArgument'), 'AbortError']);
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

for (const backend of ['cpu', 'wgpu']) {
  test(`aborting a generation on ${backend} leaves the model usable`, options, async () => {
    const body = `
      const model = await blueshift.load(url, { backend: '${backend}' });
      const controller = new AbortController();
      const generation = model.generate('Count to one thousand.', { maxTokens: 400, signal: controller.signal });
      let pieces = 0;
      const read = (async () => { for await (const _ of generation) if (++pieces === 2) controller.abort(); })();
      const aborted = [await outcome(read), await outcome(generation.result)];
      const left = model.generate('Count to one thousand.', { maxTokens: 400 });
      for await (const _ of left) break;
      const next = await model.generate('The capital of France is', { raw: true, maxTokens: 1 }).result;
      return { aborted, left: await outcome(left.result), pieces, next: next.text };
    `;
    const got = await evaluate(body, backend === 'wgpu' ? waitForAdapter : undefined);
    assert.deepEqual(got, { aborted: ['AbortError', 'AbortError'], left: 'Cancelled', pieces: 2, next: ' Paris' });
  });
}

for (const backend of ['cpu', 'wgpu']) {
  test(`four chats at once on ${backend} answer as each does alone`, options, async () => {
    const maxTokens = backend === 'cpu' ? 8 : 2;
    const body = `
      const prompts = ['The capital of France is', 'One, two, three,', 'Water boils at', 'The capital of France is'];
      const asked = (i) => ({ raw: true, maxTokens: ${maxTokens}, ...(i === 3 ? { temperature: 1.1, seed: 5, topK: 40 } : {}) });
      const answersOf = async (model, order) => {
        const generations = order.map((i) => [i, model.generate(prompts[i], asked(i))]);
        const answers = [];
        for (const [i, generation] of generations) {
          const { ids, text, content, stats } = await generation.result;
          answers[i] = { ids, text, content, streamed: generation.ids, shared: stats === null };
        }
        return answers;
      };
      const options = { backend: '${backend}', contextLength: 128 };
      const single = await blueshift.load(url, options);
      const alone = await answersOf(single, [0, 1, 2, 3]);
      single.dispose();
      const model = await blueshift.load(url, { ...options, parallel: 4 });
      const together = await answersOf(model, [3, 1, 0, 2]);
      const before = (await model.stats()).device;
      const many = await Promise.all(model.generateMany([prompts[3]], { ...asked(3), seed: 3, n: 3 }).map(({ result }) => result));
      return { alone, together, many: many.map(({ ids }) => ids), before, parallel: model.info.parallel, stats: await model.stats() };
    `;
    const got = await evaluate(body, backend === 'wgpu' ? waitForAdapter : undefined);
    for (const [i, { ids, text, content, streamed, shared }] of got.together.entries()) {
      assert.deepEqual([ids, text, content], [got.alone[i].ids, got.alone[i].text, got.alone[i].content], `prompt ${i}`);
      assert.deepEqual(streamed, ids);
      assert.deepEqual([shared, got.alone[i].shared], [true, false]);
      assert.equal(ids.length, maxTokens);
    }
    // The third completion has the seed 3 + 2, which the fourth prompt had.
    assert.deepEqual(got.many[2], got.alone[3].ids);
    assert.equal(got.many.length, 3);
    assert.equal(got.parallel, 4);
    const { scheduler, device, wasmBytes } = got.stats;
    assert.deepEqual([scheduler.running, scheduler.waiting, scheduler.pages.inUse], [0, 0, 0]);
    assert.ok(scheduler.mostRows >= 2, JSON.stringify(scheduler));
    assert.deepEqual([device.buffersCreated, device.bufferBytes], [got.before.buffersCreated, got.before.bufferBytes]);
    assert.equal(scheduler.drawn, 7 * maxTokens);
    assert.ok(wasmBytes > 0 && (backend === 'cpu') === (device.submits === 0), JSON.stringify(device));
  });
}

test('aborting one of several generations leaves the others', options, async () => {
  const got = await evaluate(`
    const model = await blueshift.load(url, { backend: 'cpu', parallel: 3, contextLength: 128 });
    const controller = new AbortController();
    const asked = { raw: true, maxTokens: 6 };
    const [left, aborted, kept, waiting] = ['Count: one,', 'Count: two,', 'The capital of France is', 'And so on.'].map((prompt, i) =>
      model.generate(prompt, i === 2 ? asked : { raw: true, maxTokens: 100, ...(i === 1 ? { signal: controller.signal } : {}) }),
    );
    const unheard = new AbortController();
    const queued = model.generate('Never begun.', { raw: true, signal: unheard.signal });
    unheard.abort();
    for await (const _ of left) break;
    for await (const _ of aborted) { controller.abort(); break; }
    const long = await outcome(model.generate('word '.repeat(200), { raw: true }).result);
    const result = await kept.result;
    const still = (await model.stats()).scheduler;
    for await (const _ of waiting) break;
    const profile = await model.profile({ promptTokens: 2, tokens: 2 });
    const again = (await model.generate('The capital of France is', asked).result).ids;
    const outcomes = await Promise.all([left, aborted, waiting, queued].map(({ result }) => outcome(result)));
    return { outcomes, long, ids: result.ids, again, running: still.running, tokens: profile.tokens, end: (await model.stats()).scheduler };
  `);
  assert.deepEqual(got.outcomes, ['Cancelled', 'AbortError', 'Cancelled', 'AbortError']);
  assert.equal(got.long, 'ContextFull');
  assert.equal(got.ids[0], 7042);
  assert.deepEqual(got.again, got.ids);
  assert.equal(got.running, 1);
  assert.equal(got.tokens, 1);
  assert.deepEqual([got.end.running, got.end.waiting, got.end.pages.inUse], [0, 0, 0]);
});

test('embeddings and ranks', options, async () => {
  const got = await evaluate(`
    const texts = ['The cat sat on the mat.', 'Interest rates rose.', 'The cat sat on the mat.'];
    const seen = [];
    for (const parallel of [1, 2]) {
      const model = await blueshift.load(url, { backend: 'cpu', parallel, contextLength: 512 });
      const [last, mean, plain] = await Promise.all([{}, { pooling: 'mean' }, { normalise: false }].map((o) => model.embed(texts, o)));
      const ranks = await model.rerank('cats', ['Cats purr.', 'Rates rose.', 'Cats purr.'], { instruction: 'Which text is about the query?' });
      const refused = await Promise.all([
        model.embed('a'), model.embed(['']), model.embed(['a'], { pooling: 'none' }), model.embed(['a'], { normalize: true }),
        model.rerank('', ['a']), model.rerank('a', [3]), model.rerank('a', ['b'], { top: 1 }), model.embed(['a'], { signal: AbortSignal.abort() }),
        model.embed(['a', 'word '.repeat(600)]),
      ].map(outcome));
      const next = (await model.generate('The capital of France is', { raw: true, maxTokens: 1 }).result).text;
      const numbers = [last, mean, plain].map((vectors) => vectors.map((vector) => [...vector]));
      seen.push({ numbers, types: last.map((vector) => vector.constructor.name), ranks, refused, next });
      model.dispose();
    }
    return seen;
  `);
  assert.deepEqual(got[0], got[1]);
  const [{ numbers, types, ranks, refused, next }] = got;
  const [last, mean, plain] = numbers;
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  assert.deepEqual(types, Array(3).fill('Float32Array'));
  for (const vectors of [last, mean]) {
    assert.ok(vectors.every((vector) => vector.length === 576 && Math.abs(dot(vector, vector) - 1) < 1e-6));
    assert.deepEqual(vectors[0], vectors[2]);
    assert.ok(dot(vectors[0], vectors[1]) < 0.999);
  }
  const length = Math.sqrt(dot(plain[1], plain[1]));
  assert.ok(length > 1.1 && Math.abs(dot(plain[1], last[1]) / length - 1) < 1e-6, String(length));
  assert.deepEqual(ranks.map(({ index }) => index).sort(), [0, 1, 2]);
  assert.ok(ranks.every(({ score }, i) => score >= 0 && score <= 1 && (i === 0 || score <= ranks[i - 1].score)));
  const scoreOf = (index) => ranks.find((ranked) => ranked.index === index).score;
  assert.equal(scoreOf(0), scoreOf(2));
  assert.notEqual(scoreOf(0), scoreOf(1));
  assert.deepEqual(refused, [...Array(7).fill('BadArgument'), 'AbortError', 'ContextFull']);
  assert.equal(next, ' Paris');
});

test('a call of a tool is read from the answer, and its result goes into the conversation', options, async () => {
  const got = await evaluate(`
    const seen = [];
    for (const parallel of [1, 2]) {
      const model = await blueshift.load(url, { backend: 'cpu', parallel, contextLength: 512 });
      const place = { type: 'object', properties: { place: { type: 'string' } }, required: ['place'] };
      const tools = [{ type: 'function', function: { name: 'weather', description: 'The weather', parameters: place } }];
      // Biases in descending order, and a penalty on what was drawn, spell the call out.
      const spelled = [...(await model.tokenize('[weather(place="Oslo")]'))];
      const end = (await model.tokenize('<|im_end|>'))[0];
      const logitBias = Object.fromEntries([...spelled, end].map((id, i) => [id, 1000 - 60 * i]));
      const options = { tools, logitBias, repeatPenalty: 100, penaltyWindow: spelled.length, maxTokens: 20 };
      const question = [{ role: 'user', content: 'Is it cold?' }];
      const generation = model.generate(question, options);
      const parts = [];
      for await (const part of generation.parts()) parts.push(part);
      const called = await generation.result;
      const [call] = called.toolCalls;
      const answered = [...question, called.message, { role: 'tool', tool_call_id: call?.id, name: call?.name, content: '-3' }];
      const goesOn = (await model.generate(answered, { tools, maxTokens: 2 }).result).timings.promptTokens;
      const content = [];
      const declined = model.generate(question, { ...options, toolChoice: 'none' });
      for await (const text of declined) content.push(text);
      const { toolCalls } = await declined.result;
      const other = { type: 'function', function: { name: 'time' } };
      const { problems } = await model.generate(question, { ...options, tools: [other] }).result;
      seen.push({ distinct: new Set(spelled).size === spelled.length, parts, called, goesOn, content: content.join(''), toolCalls, problems });
      model.dispose();
    }
    return seen;
  `);
  for (const { distinct, parts, called, goesOn, content, toolCalls, problems } of got) {
    assert.ok(distinct);
    const call = { id: 'call00000', name: 'weather', arguments: { place: 'Oslo' } };
    assert.equal(called.text, '[weather(place="Oslo")]');
    assert.deepEqual([called.content, called.reasoning, called.toolCalls, called.problems], ['', '', [call], []]);
    assert.equal(called.stopReason, 'eos');
    assert.deepEqual(parts, [{ type: 'toolCall', call }]);
    const { id, name, arguments: given } = call;
    assert.deepEqual(called.message.tool_calls, [{ id, type: 'function', function: { name, arguments: given } }]);
    assert.ok(goesOn > called.timings.promptTokens);
    assert.deepEqual([content, toolCalls], ['[weather(place="Oslo")]', []]);
    assert.match(problems.join(), /"weather", which was not offered/);
  }
});

test('an answer is held to a grammar, or to a call', options, async () => {
  const got = await evaluate(`
    const seen = [];
    for (const parallel of [1, 3]) {
      const model = await blueshift.load(url, { backend: 'cpu', parallel, contextLength: 512, kv: 'q8_0' });
      const tool = (name) => ({ type: 'function', function: { name, parameters: { type: 'object', properties: {}, additionalProperties: false } } });
      const tools = [tool('now'), tool('never')];
      const asked = [
        { regex: '[0-9]{3}!' },
        { jsonSchema: { enum: ['so', 'so not'] } },
        { grammar: 'start: "a" ("b" | "c")' },
        { responseFormat: 'json_object', maxTokens: 3 },
        { tools, toolChoice: 'required' },
        { tools, toolChoice: { name: 'never' } },
      ];
      const answers = await Promise.all(asked.map((options) => model.generate('How much?', options).result));
      const fail = (options) => model.generate('How much?', options).result.then(() => null, (e) => [e.code, e.message]);
      const failures = await Promise.all([
        { regex: '(' }, { jsonSchema: { type: 'strnig' } }, { grammar: 'start: (' },
        { toolChoice: 'required' }, { tools, toolChoice: { name: 'ever' } },
      ].map(fail));
      seen.push({ answers, failures });
      model.dispose();
    }
    return seen;
  `);
  for (const { answers, failures } of got) {
    const [regex, schema, lark, object, required, named] = answers;
    assert.match(regex.content, /^[0-9]{3}!$/);
    assert.ok(['"so"', '"so not"'].includes(schema.content), schema.content);
    assert.match(lark.content, /^a[bc]$/);
    assert.equal(regex.stopReason, 'grammar_end');
    assert.equal(object.content.trimStart()[0], '{');
    assert.ok(required.toolCalls.length > 0);
    // Several calls are allowed, and the model goes on with them until its tokens end, inside one.
    const cut = required.stopReason === 'max_tokens';
    assert.deepEqual(required.problems, cut ? ['the answer ends inside a call'] : []);
    assert.match(required.content, cut ? /^```tool_code/ : /^$/);
    assert.ok(required.toolCalls.every(({ name, arguments: given }) => ['now', 'never'].includes(name) && Object.keys(given).length === 0));
    assert.deepEqual(named.toolCalls.map(({ name }) => name), ['never']);
    assert.deepEqual(failures.map(([code]) => code), ['Grammar', 'Grammar', 'Grammar', 'BadOption', 'BadOption']);
  }
  assert.deepEqual(got[0].answers.map(({ ids }) => ids), got[1].answers.map(({ ids }) => ids));
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
    const said = (f) => { try { f(); return null; } catch (e) { return e.message; } };
    return {
      notGguf: await failure(blueshift.load(new Blob(['this is no model, only a sentence']))),
      missing: await failure(blueshift.load('/models/none.gguf', { backend: 'cpu' })),
      long: await failure(model.generate('word '.repeat(200), { raw: true }).result),
      topP: await failure(model.generate('a', { raw: true, topP: 1e-60 }).result),
      refused: [
        { maxTokens: 0 }, { maxTokens: 2 ** 32 }, { maxTokens: 1.5 }, { seed: -1 }, { seed: 2 ** 53 }, { temperature: NaN },
        { temperature: Infinity }, { temperature: -1 }, { temperature: '1' }, { stop: 3 }, { stop: [''] }, { stop: [1] },
        { topK: 0.5 }, { topP: 2 }, { minP: NaN }, { repeatPenalty: 0 }, { logitBias: { x: 1 } }, { logitBias: { 1: 1e9 } },
        { suppress: [-1] }, { suppress: 1 }, { topP: 0 }, { typicalP: 0 }, { typicalP: 1.1 }, { stopIds: 2 }, { stopIds: [0.5] },
        { logprobs: 1 }, { topLogprobs: 21 }, { topLogprobs: -1 }, { logprobs: false, topLogprobs: 1 }, { burst: 0 }, { burst: 65 },
        { inFlight: 0 }, { inFlight: 5 }, { penaltyWindow: 4097 }, { raw: 1 }, { temprature: 1 }, null, 3,
        { tools: {} }, { tools: ['f'] }, { toolChoice: 'always' }, { raw: true, tools: [{}] }, { n: 2 }, { responseFormat: 'json' }, { regex: 1 },
        { jsonSchema: [] }, { grammar: '' }, { regex: 'a', grammar: 'start: "a"' }, { jsonSchema: {}, toolChoice: 'required' }, { toolChoice: { name: '' } },
      ].map((options) => thrown(() => model.generate('a', options))),
      words: [{ typicalP: 2 }, { topLogprobs: 21 }, { temprature: 1 }].map((options) => said(() => model.generate('a', options))),
      many: [{ n: 0 }, { n: 1.5 }, { seed: 2 ** 53 - 1, n: 2 }, { prompts: 1 }].map((options) => thrown(() => model.generateMany(['a'], options))),
      notMany: thrown(() => model.generateMany('a')),
      loads: await Promise.all([{ parallel: 0 }, { parallel: 65 }, { cacheBytes: 0 }, { kv: 'q4_0' }].map((options) => outcome(blueshift.load(url, options)))),
      small: await failure(blueshift.load(url, { backend: 'cpu', contextLength: 4096, cacheBytes: 1000 })),
      tool: await failure(model.generate('a', { tools: [{ type: 'function', function: { name: 'no name' } }] }).result),
      stranger: await failure(blueshift.load(url, { backend: 'cpu', context: 64 })),
      stopId: await failure(model.generate('a', { raw: true, stopIds: [49152] }).result),
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
  assert.match(got.words[0], /^typicalP is 2, expected a number above 0, at most 1$/);
  assert.match(got.words[1], /^topLogprobs is 21, expected an integer from 0 to 20$/);
  assert.match(got.words[2], /^generate has no option "temprature", its options are maxTokens, temperature, .*, inFlight, raw, tools, toolChoice, jsonSchema, responseFormat, regex, grammar, signal$/);
  assert.deepEqual([...got.many, got.notMany, ...got.loads], Array(9).fill('BadArgument'));
  assert.deepEqual([got.small.code, got.tool.code], ['CacheTooSmall', 'BadTool']);
  assert.equal(got.stranger.code, 'BadArgument');
  assert.match(got.stranger.text, /^load has no option "context", its options are backend, contextLength, parallel, cacheBytes, kv, onProgress, signal$/);
  assert.equal(got.stopId.code, 'BadToken');
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

test('a device that draws wrongly is told of once a model', async (t) => {
  const { Model } = await import(join(dist, 'model.js'));
  const warn = t.mock.method(console, 'warn', () => {});
  const answers = [null, 'it drew 9', 'it drew 8'];
  const model = new Model({ parallel: 1 }, { call: async () => ({ fallback: answers.shift() }) });
  const told = [];
  for (let i = 0; i < 3; i++) told.push((await model.generate('a').result).fallback);
  assert.deepEqual(told, [null, 'it drew 9', 'it drew 8']);
  assert.equal(warn.mock.callCount(), 1);
  assert.match(warn.mock.calls[0].arguments[0], /it drew 9/);
});
