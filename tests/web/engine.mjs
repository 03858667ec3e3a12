// The engine in a worker of a page, below the npm package's interface: for measuring and for comparing backends.

import { launch, waitForAdapter } from './browser.mjs';
import { startServer } from './server.mjs';

/**
 * Loads a model of the folder of models in a headless Chromium and calls a method of the wasm `Model` that takes and gives JSON. Returns what it
 * gave, and the milliseconds the load took as `load_ms`; what fails is thrown.
 */
export async function askEngine({ model, adapter, backend, contextLength, method, options }) {
  const load = { backend, contextLength, parallel: 1, cacheBytes: null, kv: 'f16' };
  const server = await startServer();
  const browser = await launch(adapter);
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    await page.goto(`${server.address}blank`);
    if (backend === 'wgpu') await waitForAdapter(page);
    const { report, error } = await page.evaluate(askInPage, { url: `models/${model}`, load, method, options });
    if (error !== undefined) throw new Error(error);
    return report;
  } finally {
    await browser.close();
    server.stop();
  }
}

/** Runs within the page. */
function askInPage({ url, ...request }) {
  const code = `
    import init, { Model } from '${location.origin}/blueshift/wasm/blueshift.js';
    onmessage = async ({ data: { url, load, method, options } }) => {
      try {
        await init();
        const start = performance.now();
        const model = await Model.from_url(url, JSON.stringify(load), () => {});
        const load_ms = performance.now() - start;
        postMessage({ report: { ...JSON.parse(await model[method](JSON.stringify(options))), load_ms } });
      } catch (error) {
        postMessage({ error: String(error) });
      }
    };`;
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })), { type: 'module' });
  worker.postMessage({ url: new URL(url, `${location.origin}/`).href, ...request });
  return new Promise((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = (event) => resolve({ error: event.message });
  });
}
