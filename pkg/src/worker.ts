/** The worker: owns the engine, receives calls and sends replies. */

import { embed, generate, profile, rerank, stats } from './answers.js';
import { breathe } from './breathe.js';
import type { Calls, Event, Reply, Request } from './protocol.js';
import { Turns } from './turns.js';
import type { LoadProgress, ModelInfo } from './types.js';
import init, { Model } from './wasm/blueshift.js';

/** What the worker uses of its global scope, which the page's type library does not know. */
interface Scope {
  postMessage(reply: Reply): void;
  addEventListener(type: 'message', listener: (event: MessageEvent<Request>) => void): void;
  addEventListener(type: 'unhandledrejection', listener: (event: PromiseRejectionEvent) => void): void;
}

/** What a browser tells of a GPU; each may be empty. */
type AdapterInfo = Partial<Record<'vendor' | 'architecture' | 'device', string>>;

/** What `load` leaves. */
interface Loaded {
  readonly turns: Turns;
  readonly parallel: number;
  readonly memory: WebAssembly.Memory;
}

/** Milliseconds between two progress messages. */
const PROGRESS_INTERVAL = 50;

const scope = self as unknown as Scope;
/** What ends the calls under way. */
const calls = new Map<number, AbortController>();
let loaded: Loaded | undefined;

scope.addEventListener('message', ({ data: request }) => {
  if (request.call === 'cancel') calls.get(request.id)?.abort();
  else void answer(request);
});
scope.addEventListener('unhandledrejection', ({ reason }) => scope.postMessage({ crash: String(reason) }));

async function answer(request: Exclude<Request, { call: 'cancel' }>): Promise<void> {
  const { id } = request;
  const controller = new AbortController();
  calls.set(id, controller);
  try {
    scope.postMessage({ id, done: await perform(request, controller.signal) });
  } catch (error) {
    // After a trap the engine's memory cannot be relied on.
    if (error instanceof WebAssembly.RuntimeError) scope.postMessage({ crash: error.message });
    else scope.postMessage({ id, error: describe(error) });
  } finally {
    calls.delete(id);
  }
}

function perform(request: Exclude<Request, { call: 'cancel' }>, signal: AbortSignal): Promise<Calls[keyof Calls]['out']> {
  const emit = (event: Event) => scope.postMessage({ id: request.id, event });
  if (request.call === 'load') return load(request.args, emit);
  if (loaded === undefined) throw new Error('no model is loaded');
  const { turns, parallel, memory } = loaded;
  switch (request.call) {
    case 'tokenize':
      return turns.between((model) => model.tokenize(request.args.text));
    case 'profile':
      return profile(turns, request.args, signal);
    case 'generate':
      return generate(turns, parallel, request.args, emit, signal);
    case 'embed':
      return embed(turns, request.args, signal);
    case 'rerank':
      return rerank(turns, request.args, signal);
    case 'stats':
      return stats(turns, memory);
  }
}

async function load({ source, ...options }: Calls['load']['in'], emit: (event: Event) => void): Promise<ModelInfo> {
  const { memory } = await init();
  const [open, place] = typeof source === 'string' ? [Model.from_url, source] : [Model.from_blob, source];
  const model = await open(place as never, JSON.stringify(options), throttled((progress) => emit({ progress })));
  loaded = { turns: new Turns(model, breathe), parallel: options.parallel, memory };
  const info: ModelInfo = JSON.parse(model.info());
  return info.adapter === '' ? { ...info, adapter: await adapterName() } : info;
}

/** Browsers may withhold the adapter's description, the one thing the engine reads; its vendor and kind they tell. */
async function adapterName(): Promise<string> {
  const { gpu } = navigator as unknown as { gpu?: { requestAdapter(): Promise<{ info: AdapterInfo } | null> } };
  const { vendor, architecture, device } = (await gpu?.requestAdapter())?.info ?? {};
  return [vendor, architecture || device].filter(Boolean).join(' ') || 'unnamed';
}

/** Passes on the first progress, the last, and no more than one in an interval between them. */
function throttled(emit: (progress: LoadProgress) => void): (bytes: number, total: number, tensor: string) => void {
  let next = 0;
  return (bytes, total, tensor) => {
    const now = performance.now();
    if (now < next && bytes < total) return;
    next = now + PROGRESS_INTERVAL;
    emit({ bytes, total, tensor });
  };
}

function describe(error: unknown): { code: string; message: string } {
  const { code, name, message } = error as { code?: unknown; name?: unknown; message?: unknown };
  return {
    code: typeof code === 'string' ? code : typeof name === 'string' ? name : 'Unknown',
    message: typeof message === 'string' ? message : String(error),
  };
}
