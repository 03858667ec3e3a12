// A static server for the tests: the page, the package and the models, with byte ranges.

import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

import { dist, models, www } from './places.mjs';

const types = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};

const mounts = [
  ['/blueshift/', dist],
  ['/models/', models],
  ['/', www],
];

/** Starts on a free port of loopback; gives the address and a function that stops it. */
export async function startServer() {
  const server = createServer(answer);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const stop = () => (server.closeAllConnections(), server.close());
  return { address: `http://127.0.0.1:${server.address().port}/`, stop };
}

function answer(request, response) {
  const path = normalize(decodeURIComponent(request.url.split('?')[0]));
  const [prefix, folder] = mounts.find(([prefix]) => path.startsWith(prefix));
  const file = join(folder, path === '/' ? 'index.html' : path.slice(prefix.length));
  const size = statSync(file, { throwIfNoEntry: false })?.size;
  if (path === '/blank') return response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html>');
  if (path === '/favicon.ico') return response.writeHead(204).end();
  if (size === undefined) return response.writeHead(404).end();
  const headers = { 'content-type': types[extname(file)] ?? 'application/octet-stream', 'accept-ranges': 'bytes' };
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
  const start = range ? Number(range[1]) : 0;
  const end = range?.[2] ? Math.min(Number(range[2]), size - 1) : size - 1;
  if (range && start >= size) return response.writeHead(416, { 'content-range': `bytes */${size}` }).end();
  headers['content-length'] = end - start + 1;
  if (range) headers['content-range'] = `bytes ${start}-${end}/${size}`;
  response.writeHead(range ? 206 : 200, headers);
  if (request.method === 'HEAD') return response.end();
  createReadStream(file, { start, end }).pipe(response);
}
