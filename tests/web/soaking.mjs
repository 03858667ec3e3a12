// A soak of the package within a page, and what its figures must be.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { commandLine } from './places.mjs';

/** The bytes of a tiny model of random weights, as base64. */
export function writeMicro() {
  const folder = mkdtempSync(join(tmpdir(), 'blueshift-'));
  try {
    const out = join(folder, 'micro.gguf');
    execFileSync(commandLine, ['synth', 'micro', '--out', out]);
    return { base64: readFileSync(out).toString('base64') };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Soaks a model, an address or what `writeMicro` gives, for `seconds`. Returns the figures. */
export function soak(page, plan) {
  return page.evaluate(soakInPage, plan);
}

/** What is wrong with a soak's figures, in words. */
export function faults({ early, late, ...figures }) {
  const found = [];
  const check = (isRight, words) => isRight || found.push(words);
  const { ended, cancelled, failed, begun, lost } = figures;
  check(early !== null && cancelled > 0, 'too little happened: give it more time');
  check(failed.length === 0, `requests failed: ${failed.slice(0, 3)}`);
  check(lost === 0 && ended + cancelled === begun, `${begun} requests began, ${ended} ended and ${cancelled} were cancelled`);
  check(late.scheduler.pages.inUse === 0, `${late.scheduler.pages.inUse} pages are in use at the end`);
  check(late.scheduler.running === 0 && late.scheduler.waiting === 0, 'requests are under way at the end');
  if (early !== null) {
    check(late.wasmBytes <= early.wasmBytes, `wasm memory grew from ${early.wasmBytes} to ${late.wasmBytes} bytes`);
    for (const counter of ['buffersCreated', 'bufferBytes', 'querySetsCreated']) {
      check(early.device[counter] === late.device[counter], `${counter} grew from ${early.device[counter]} to ${late.device[counter]}`);
    }
  }
  check(figures.different === 0, `${figures.different} of ${figures.compared} answers are others alone`);
  return found;
}

/** Whether somebody waits longer than a chunk of a prompt and a step of all rows take, in words: nothing where nobody does. It says something
 * where a step takes longer than a message's way to the page. */
export function lateness({ gapMs, longestStepMs }) {
  return gapMs.p99 <= longestStepMs ? [] : [`tokens are ${gapMs.p99} ms apart, the longest step took ${longestStepMs} ms`];
}

/** Runs within the page. */
async function soakInPage({ model: source, load, seconds, open, prompt, answer, seed }) {
  const blueshift = await import('/blueshift/index.js');
  const bytes = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const model = await blueshift.load(typeof source === 'string' ? source : new Blob([bytes(source.base64)]), load);

  // Numbers that look random: SplitMix32.
  let state = seed;
  const below = (n) => {
    state = (state + 0x9e3779b9) | 0;
    let z = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) % n;
  };
  const letters = 'etaoin shrdlu';
  const shared = Array.from({ length: prompt }, () => letters[below(letters.length)]).join('');
  const randomRequest = () => {
    const n = 1 + below(prompt);
    const begin = below(3) === 0 ? shared.slice(0, n) : '';
    const text = begin + Array.from({ length: n - begin.length }, () => letters[below(letters.length)]).join('');
    const sampling = [{}, { temperature: 0.8, topK: 40, topP: 0.95 }, { temperature: 1, repeatPenalty: 1.1 }, { temperature: 1.2 }][below(4)];
    return [text, { raw: true, maxTokens: 1 + below(answer), seed: below(2 ** 30), ...sampling }];
  };

  const figures = { begun: 0, ended: 0, cancelled: 0, failed: [], lost: 0, tokens: 0, compared: 0, different: 0 };
  const gaps = [];
  const kept = [];
  let slowest = 0;
  const start = performance.now();
  const end = start + seconds * 1000;

  /** One request after another, each read to its end or left early. */
  async function read() {
    while (performance.now() < end) {
      const [text, options] = randomRequest();
      const leaveAt = below(8) === 0 ? below(answer) : Infinity;
      const way = below(2);
      const controller = new AbortController();
      const began = performance.now();
      figures.begun += 1;
      const generation = model.generate(text, { ...options, signal: controller.signal });
      const ended = generation.result.then(() => 'ended', (error) => error);
      let last;
      // Tokens, not texts: one may have no text of its own.
      generation.ids.push = function (...ids) {
        const now = performance.now();
        if (last !== undefined) gaps.push(now - last);
        last = now;
        return Array.prototype.push.apply(this, ids);
      };
      try {
        for await (const _ of generation) {
          if (generation.ids.length > leaveAt) {
            if (way === 0) break;
            controller.abort();
          }
        }
      } catch {
        // The same error is the result's.
      }
      const how = await ended;
      if (how === 'ended') {
        figures.ended += 1;
        figures.tokens += generation.ids.length;
        slowest = Math.max(slowest, performance.now() - began);
        if (figures.ended % 40 === 1 && kept.length < 20) kept.push([text, options, generation.ids.join()]);
      } else if (how.name === 'AbortError' || how.code === 'Cancelled') figures.cancelled += 1;
      else figures.failed.push(String(how));
    }
  }

  // After a fifth of the time all has been made that is made when it is first needed.
  const readers = Promise.all(Array.from({ length: open }, read));
  const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  await wait(seconds * 200);
  while (figures.ended < 2 * open && performance.now() < end) await wait(100);
  const early = figures.ended < 2 * open ? null : await model.stats();
  await readers;
  figures.lost = figures.begun - figures.ended - figures.cancelled - figures.failed.length;
  const late = await model.stats();
  for (const [text, options, ids] of kept) {
    const alone = (await model.generate(text, options).result).ids.join();
    figures.compared += 1;
    figures.different += alone === ids ? 0 : 1;
  }
  model.dispose();
  gaps.sort((a, b) => a - b);
  const quantile = (q) => gaps[Math.min(gaps.length - 1, Math.floor(gaps.length * q))] ?? 0;
  return {
    ...figures,
    seconds: (performance.now() - start) / 1000,
    slowestMs: slowest,
    gapMs: { p50: quantile(0.5), p99: quantile(0.99), most: quantile(1) },
    longestStepMs: late.longestStepMs,
    early,
    late,
  };
}
