// Where the things under test lie.

import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

export const root = resolve(import.meta.dirname, '../..');
const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
const target = resolve(root, process.env.CARGO_TARGET_DIR ?? 'target');

export const www = join(root, 'www');
export const dist = join(root, 'pkg/dist');
export const models = process.env.BLUESHIFT_MODELS ?? join(cache, 'blueshift/models');
export const smollm2 = 'SmolLM2-135M-Instruct.Q4_1.gguf';
export const commandLine = process.env.BLUESHIFT_BIN ?? join(target, 'debug/blueshift');
export const chrome = process.env.CHROME ?? '/usr/bin/chromium';

/** Fails with what to do where something has not been built or fetched. */
export function requireFiles() {
  const needed = [
    [join(dist, 'wasm/blueshift_bg.wasm'), 'cargo xtask web'],
    [join(models, smollm2), 'cargo xtask fetch-models smollm2'],
    [commandLine, 'cargo build'],
    [chrome, 'install Chromium or set CHROME'],
  ];
  for (const [path, remedy] of needed) {
    if (!existsSync(path)) throw new Error(`${path} is missing: ${remedy}`);
  }
}
