// A headless Chromium on a page of the test server; its WebGPU is SwiftShader, or the machine's GPU where that is asked for.

import { after, before } from 'node:test';

import { chromium } from 'playwright-core';

import { chrome, requireFiles } from './places.mjs';
import { startServer } from './server.mjs';

const common = [
  '--no-sandbox',
  '--enable-unsafe-webgpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  '--disable-quic',
];
const adapters = {
  sw: ['--use-webgpu-adapter=swiftshader', '--disable-gpu-watchdog'],
  hw: ['--enable-features=Vulkan', '--use-angle=vulkan', '--disable-vulkan-surface', '--ignore-gpu-blocklist', '--disable-gpu-sandbox'],
};

/** Starts Chromium with the software adapter (`sw`) or the machine's GPU (`hw`). */
export function launch(adapter) {
  return chromium.launch({
    executablePath: chrome,
    args: [...common, ...adapters[adapter]],
    ignoreDefaultArgs: ['--disable-gpu', '--enable-unsafe-swiftshader'],
  });
}

/** The software adapter decodes about one token a second. */
export const PATIENCE = 15 * 60 * 1000;

/**
 * Starts a server (`start` gives its address and how to stop it) and a browser before the file's tests and stops them after. The returned object then has `address`
 * and `open(path)`, which gives a fresh page; its console and errors are shown.
 */
export function withBrowser(start = startServer) {
  const context = {};
  let server;
  let browser;
  before(async () => {
    requireFiles();
    server = await start();
    browser = await launch('sw');
    context.address = server.address;
    context.open = async (path) => {
      const page = await browser.newPage();
      page.setDefaultTimeout(PATIENCE);
      page.on('console', (message) => console.log(`[page] ${message.text()}`));
      page.on('pageerror', (error) => console.log(`[page] ${error.stack ?? error}`));
      await page.goto(server.address + path);
      return page;
    };
  });
  after(async () => {
    await browser?.close();
    server?.stop();
  });
  return context;
}

/** Waits until the browser's GPU process offers an adapter; the first requests can fail while it starts. */
export async function waitForAdapter(page) {
  const found = await page.evaluate(async () => {
    for (let tries = 0; tries < 30; tries++) {
      if (await navigator.gpu?.requestAdapter()) return true;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    return false;
  });
  if (!found) throw new Error('the browser offers no WebGPU adapter');
}
