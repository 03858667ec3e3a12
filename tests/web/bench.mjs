// Measures a model in a headless Chromium, in a worker as the npm package's engine is. Prints the JSON of `blueshift bench`.
//   node tests/web/bench.mjs [--model FILE] [--adapter hw|sw] [--backend wgpu|cpu] [--pp N] [--tg N] [--depth N] [--reps N]
//     [--burst N] [--in-flight N] [--ctx N] [--profile]
// FILE lies in the folder of models. Environment: as run.mjs.

import { parseArgs } from 'node:util';

import { launch, waitForAdapter } from './browser.mjs';
import { smollm2 } from './places.mjs';
import { startServer } from './server.mjs';

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
const request = {
  url: `models/${values.model}`,
  load: { backend: values.backend, contextLength: number('ctx') },
  bench: {
    ...Object.fromEntries(['pp', 'tg', 'depth', 'reps', 'burst'].map((name) => [name, number(name)])),
    in_flight: number('in-flight'),
    profile: values.profile,
  },
};

const server = await startServer();
const browser = await launch(values.adapter);
const page = await browser.newPage();
page.setDefaultTimeout(0);
await page.goto(`${server.address}blank`);
if (values.backend === 'wgpu') await waitForAdapter(page);
const report = await page.evaluate(async ({ url, load, bench }) => {
  const code = `
    import init, { Model } from '${location.origin}/blueshift/wasm/blueshift.js';
    onmessage = async ({ data: { url, load, bench } }) => {
      try {
        await init();
        const start = performance.now();
        const model = await Model.from_url(url, JSON.stringify(load), () => {});
        const load_ms = performance.now() - start;
        postMessage({ report: { ...JSON.parse(await model.bench(JSON.stringify(bench))), load_ms } });
      } catch (error) {
        postMessage({ error: String(error) });
      }
    };`;
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })), { type: 'module' });
  worker.postMessage({ url: new URL(url, `${location.origin}/`).href, load, bench });
  return new Promise((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = (event) => resolve({ error: event.message });
  });
}, request);
await browser.close();
server.stop();
if (report.error) {
  console.error(report.error);
  process.exit(1);
}
console.log(JSON.stringify(report.report));
