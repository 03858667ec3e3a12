// Runs the browser tests one file after another, with node's own test runner.
//   node tests/web/run.mjs [FILE...]
// Environment: CHROME (browser), BLUESHIFT_MODELS (folder of models), BLUESHIFT_BIN (the command line program),
// BLUESHIFT_XTASK (the built xtask program).

import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

const here = import.meta.dirname;
const named = process.argv.slice(2);
const files = named.length > 0 ? named : readdirSync(here).filter((f) => f.endsWith('.test.mjs')).map((f) => join(here, f));
const options = ['--test', '--test-reporter=spec', '--test-concurrency=1'];
const { status } = spawnSync(process.execPath, [...options, ...files], { stdio: 'inherit' });
process.exit(status ?? 1);
