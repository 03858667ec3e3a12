// The project's own server, as users start it.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

import { models, root } from './places.mjs';

/** Starts `xtask serve` on a free port; gives the address and a function that stops it. */
export async function startOwnServer() {
  const built = process.env.BLUESHIFT_XTASK;
  const [program, ...first] = built ? [built] : ['cargo', 'run', '--quiet', '--package', 'xtask', '--'];
  const args = [...first, 'serve', '--port', '0', '--dir', models];
  const child = spawn(program, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] });
  const stop = () => void child.kill();
  const failed = new Promise((_, reject) => child.on('error', reject));
  const address = (async () => {
    for await (const line of createInterface({ input: child.stdout })) {
      const [found] = /http:\S+/.exec(line) ?? [];
      if (found) return found;
    }
    throw new Error(`${program} ${args.join(' ')} ended without an address`);
  })();
  return { address: await Promise.race([address, failed]), stop };
}
