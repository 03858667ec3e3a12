// Who uses the engine when, with an engine that only writes down what it is asked.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { dist } from './places.mjs';

const { Turns } = await import(join(dist, 'turns.js'));

/** An engine whose requests take as many steps as they are asked for; none may be asked anything within a step. */
class FakeModel {
  log = [];
  #left = new Map();
  #isBusy = false;
  #numbers = 0;

  submit(steps) {
    this.say(`submit ${steps}`);
    if (steps === 0) throw new Error('refused');
    this.#left.set(++this.#numbers, steps);
    return this.#numbers;
  }

  cancel(request) {
    this.say(`cancel ${request}`);
    this.#left.delete(request);
  }

  async step() {
    this.say('step');
    this.#isBusy = true;
    await new Promise((resolve) => setTimeout(resolve, 1));
    this.#isBusy = false;
    const told = [...this.#left].map(([request, left]) => this.#told(request, left - 1));
    if (told.some((event) => event === undefined)) throw new Error('the device is lost');
    return JSON.stringify(told);
  }

  #told(request, left) {
    this.#left.set(request, left);
    if (left > 0) return { request, piece: left };
    this.#left.delete(request);
    if (left === 0) return { request, finish: `answer ${request}` };
    if (left === -2) return { request, error: { code: 'NotFinite', message: 'not finite' } };
    return undefined;
  }

  say(words) {
    assert.ok(!this.#isBusy, `${words} within a step`);
    this.log.push(words);
  }
}

const never = new AbortController().signal;
const breathe = () => new Promise((resolve) => setImmediate(resolve));

test('requests share steps, and each is told of its own', async () => {
  const model = new FakeModel();
  const turns = new Turns(model, breathe);
  const pieces = [[], []];
  const ask = (steps, i) => turns.share((m) => m.submit(steps), never, (piece) => pieces[i].push(piece));
  assert.deepEqual(await Promise.all([ask(3, 0), ask(2, 1)]), ['answer 1', 'answer 2']);
  assert.deepEqual(pieces, [[2, 1], [1]]);
  assert.deepEqual(model.log, ['submit 3', 'submit 2', 'step', 'step', 'step']);
  assert.ok(turns.longestStepMs > 0);
});

test('who needs the engine alone waits for all before, and all after wait for its end', async () => {
  const model = new FakeModel();
  const turns = new Turns(model, breathe);
  const before = turns.share((m) => m.submit(2), never);
  const alone = turns.alone(async (m) => {
    m.say('alone begins');
    await new Promise((resolve) => setTimeout(resolve, 2));
    m.say('alone ends');
  });
  const after = turns.share((m) => m.submit(1), never);
  const looked = turns.between((m) => m.say('between'));
  await Promise.all([before, alone, after, looked]);
  assert.deepEqual(model.log, ['submit 2', 'step', 'step', 'alone begins', 'alone ends', 'submit 1', 'between', 'step']);
  // A turn that is asked for as another one ends is taken, too.
  assert.equal(await turns.between(() => 1).then(() => turns.between(() => 2)), 2);
});

test('aborting, failing and being refused is a matter of one request', async () => {
  const model = new FakeModel();
  const turns = new Turns(model, breathe);
  const [first, second] = [new AbortController(), new AbortController()];
  const how = (promise) => promise.catch((error) => error.name ?? error.code);
  const aborted = how(turns.share((m) => m.submit(50), first.signal, () => first.abort()));
  // Aborted before its turn has come, it is never submitted.
  const unheard = how(turns.share((m) => m.submit(60), second.signal));
  second.abort();
  const failed = how(turns.share((m) => m.submit(-1), never));
  const refused = turns.share((m) => m.submit(0), never).catch((error) => error.message);
  const kept = turns.share((m) => m.submit(4), never);
  assert.deepEqual(await Promise.all([aborted, unheard, failed, refused, kept]), ['AbortError', 'AbortError', 'NotFinite', 'refused', 'answer 3']);
  assert.deepEqual(model.log.filter((words) => words.startsWith('cancel')), ['cancel 1']);
});

test('where the device fails all requests do, and the next ones are tried', async () => {
  const model = new FakeModel();
  const turns = new Turns(model, breathe);
  const ask = (steps) => turns.share((m) => m.submit(steps), never).catch((error) => error.message);
  assert.deepEqual(await Promise.all([ask(-9), ask(5)]), ['the device is lost', 'the device is lost']);
  assert.equal(await ask(1), 'answer 3');
});
