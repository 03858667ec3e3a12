// A headless Chromium whose WebGPU is SwiftShader, on a page of the test server.

import { after, before } from 'node:test';

import { chromium } from 'playwright-core';

import { chrome, requireFiles } from './places.mjs';
import { startServer } from './server.mjs';

const args = [
  '--no-sandbox',
  '--enable-unsafe-webgpu',
  '--use-webgpu-adapter=swiftshader',
  '--disable-gpu-watchdog',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  '--disable-quic',
];

/** The software adapter decodes about one token a second. */
export const PATIENCE = 15 * 60 * 1000;

/**
 * Starts a server and a browser before the file's tests and stops them after. The returned object then has `address`
 * and `open(path)`, which gives a fresh page; its console and errors are shown.
 */
export function withBrowser() {
  const context = {};
  let server;
  let browser;
  before(async () => {
    requireFiles();
    server = await startServer();
    browser = await chromium.launch({
      executablePath: chrome,
      args,
      ignoreDefaultArgs: ['--disable-gpu', '--enable-unsafe-swiftshader'],
    });
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
