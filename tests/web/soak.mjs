// Keeps a model busy in a headless Chromium, through the npm package, with requests of random lengths of which some are cancelled; tells whether
// anything leaks, starves or is lost. Prints its figures as JSON and fails where one is wrong.
//   node tests/web/soak.mjs [--model micro|FILE] [--adapter hw|sw] [--backend wgpu|cpu] [--minutes M] [--parallel N] [--open N] [--prompt N]
//     [--answer N] [--ctx N] [--seed N]
// FILE lies in the folder of models; `micro` is a tiny one of random weights. `open` requests are under way at a time. Environment: as run.mjs.

import { parseArgs } from 'node:util';

import { launch, waitForAdapter } from './browser.mjs';
import { startServer } from './server.mjs';
import { faults, lateness, soak, writeMicro } from './soaking.mjs';

const text = (value) => ({ type: 'string', default: value });
const { values } = parseArgs({
  options: {
    model: text('micro'),
    adapter: text('hw'),
    backend: text('wgpu'),
    minutes: text('10'),
    parallel: text('8'),
    open: text('12'),
    prompt: text('160'),
    answer: text('48'),
    ctx: text('512'),
    seed: text('1'),
  },
});
const number = (name) => Number.parseFloat(values[name]);

const server = await startServer();
const browser = await launch(values.adapter);
const page = await browser.newPage();
page.setDefaultTimeout(0);
await page.goto(`${server.address}blank`);
if (values.backend === 'wgpu') await waitForAdapter(page);
const figures = await soak(page, {
  model: values.model === 'micro' ? writeMicro() : `${server.address}models/${values.model}`,
  load: { backend: values.backend, contextLength: number('ctx'), parallel: number('parallel') },
  seconds: number('minutes') * 60,
  open: number('open'),
  prompt: number('prompt'),
  answer: number('answer'),
  seed: number('seed'),
});
await browser.close();
server.stop();
const found = [...faults(figures), ...lateness(figures)];
console.log(JSON.stringify({ ...figures, faults: found }, null, 2));
process.exit(found.length > 0 ? 1 : 0);
