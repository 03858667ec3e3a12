// Measures a model in a headless Chromium, in a worker as the npm package's engine is. Prints the JSON of `blueshift bench`.
//   node tests/web/bench.mjs [--model FILE] [--adapter hw|sw] [--backend wgpu|cpu] [--pp N] [--tg N] [--depth N] [--reps N]
//     [--burst N] [--in-flight N] [--ctx N] [--profile]
// FILE lies in the folder of models. Environment: as run.mjs.

import { parseArgs } from 'node:util';

import { askEngine } from './engine.mjs';
import { smollm2 } from './places.mjs';

const text = (value) => ({ type: 'string', ...(value === undefined ? {} : { default: value }) });
const { values } = parseArgs({
  options: {
    model: text(smollm2),
    adapter: text('hw'),
    backend: text('wgpu'),
    pp: text('512'),
    tg: text('128'),
    depth: text('0'),
    reps: text('5'),
    burst: text(undefined),
    'in-flight': text(undefined),
    ctx: text('4096'),
    profile: { type: 'boolean', default: false },
  },
});
const number = (name) => (values[name] === undefined ? null : Number.parseInt(values[name], 10));
const report = await askEngine({
  model: values.model,
  adapter: values.adapter,
  backend: values.backend,
  contextLength: number('ctx'),
  method: 'bench',
  options: {
    ...Object.fromEntries(['pp', 'tg', 'depth', 'reps', 'burst'].map((name) => [name, number(name)])),
    in_flight: number('in-flight'),
    profile: values.profile,
  },
});
console.log(JSON.stringify(report));
