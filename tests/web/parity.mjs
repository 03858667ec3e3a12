// What a backend answers in a headless Chromium: prints the JSON of `blueshift parity`.
//   node tests/web/parity.mjs --prompts FILE [--model FILE] [--adapter hw|sw] [--backend wgpu|cpu] [--tokens N] [--ctx N]
// A model's FILE lies in the folder of models. Environment: as run.mjs.

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

import { askEngine } from './engine.mjs';
import { smollm2 } from './places.mjs';

const { values } = parseArgs({
  options: {
    prompts: { type: 'string' },
    model: { type: 'string', default: smollm2 },
    adapter: { type: 'string', default: 'hw' },
    backend: { type: 'string', default: 'wgpu' },
    tokens: { type: 'string', default: '256' },
    ctx: { type: 'string', default: '4096' },
  },
});
const lines = readFileSync(values.prompts, 'utf8').split('\n');
const { load_ms, ...report } = await askEngine({
  model: values.model,
  adapter: values.adapter,
  backend: values.backend,
  contextLength: Number.parseInt(values.ctx, 10),
  method: 'parity',
  options: { prompts: lines.filter((line) => line.trim() !== ''), tokens: Number.parseInt(values.tokens, 10) },
});
console.log(JSON.stringify(report));
