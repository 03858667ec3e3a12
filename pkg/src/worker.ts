/** The worker: owns the engine, answers requests one after another. */

import init, { Model } from './wasm/blueshift.js';
import type { Calls, Event, Piece, Reply, Request } from './protocol.js';
import type { GenerationResult, LoadProgress, ModelInfo, Profile, TokenLogprobs } from './types.js';

/** What the worker uses of its global scope, which the page's type library does not know. */
interface Scope {
  postMessage(reply: Reply): void;
  addEventListener(type: 'message', listener: (event: MessageEvent<Request>) => void): void;
  addEventListener(type: 'unhandledrejection', listener: (event: PromiseRejectionEvent) => void): void;
}

/** What a browser tells of a GPU; each may be empty. */
type AdapterInfo = Partial<Record<'vendor' | 'architecture' | 'device', string>>;

/** Tokens as the engine gives them. */
interface EnginePiece {
  readonly ids: readonly number[];
  readonly text: string;
  readonly logprobs?: readonly { readonly logprob: number | null; readonly top: TokenLogprobs['top'] }[];
}

/** Milliseconds between two progress messages. */
const PROGRESS_INTERVAL = 50;

const scope = self as unknown as Scope;
const waiting = new Set<number>();
const cancelled = new Set<number>();
const channel = new MessageChannel();
let model: Model | undefined;
let turn: Promise<void> = Promise.resolve();

scope.addEventListener('message', ({ data: request }) => {
  if (request.call === 'cancel') {
    if (waiting.has(request.id)) cancelled.add(request.id);
    return;
  }
  waiting.add(request.id);
  turn = turn.then(() => answer(request));
});
scope.addEventListener('unhandledrejection', ({ reason }) => scope.postMessage({ crash: String(reason) }));

async function answer(request: Exclude<Request, { call: 'cancel' }>): Promise<void> {
  const { id } = request;
  try {
    scope.postMessage({ id, done: await perform(request) });
  } catch (error) {
    // After a trap the engine's memory cannot be relied on.
    if (error instanceof WebAssembly.RuntimeError) scope.postMessage({ crash: error.message });
    else scope.postMessage({ id, error: describe(error) });
  } finally {
    waiting.delete(id);
    cancelled.delete(id);
  }
}

function perform(request: Exclude<Request, { call: 'cancel' }>): Promise<Calls[keyof Calls]['out']> {
  const emit = (event: Event) => scope.postMessage({ id: request.id, event });
  switch (request.call) {
    case 'load':
      return load(request.args, emit);
    case 'tokenize':
      return Promise.resolve(loaded().tokenize(request.args.text));
    case 'profile':
      return profile(request.args);
    case 'generate':
      return generate(request.args, emit, () => cancelled.has(request.id));
  }
}

async function load({ source, ...options }: Calls['load']['in'], emit: (event: Event) => void): Promise<Calls['load']['out']> {
  await init();
  const [open, place] = typeof source === 'string' ? [Model.from_url, source] : [Model.from_blob, source];
  model = await open(place as never, JSON.stringify(options), throttled((progress) => emit({ progress })));
  const info: ModelInfo = JSON.parse(model.info());
  return info.adapter === '' ? { ...info, adapter: await adapterName() } : info;
}

/** Browsers may withhold the adapter's description, the one thing the engine reads; its vendor and kind they tell. */
async function adapterName(): Promise<string> {
  const { gpu } = navigator as unknown as { gpu?: { requestAdapter(): Promise<{ info: AdapterInfo } | null> } };
  const { vendor, architecture, device } = (await gpu?.requestAdapter())?.info ?? {};
  return [vendor, architecture || device].filter(Boolean).join(' ') || 'unnamed';
}

async function generate(
  { prompt, options }: Calls['generate']['in'],
  emit: (event: Event) => void,
  isCancelled: () => boolean,
): Promise<GenerationResult> {
  const model = loaded();
  const generation = model.start(JSON.stringify(prompt), JSON.stringify(options));
  try {
    const whole = { ids: [] as number[], text: '', ...(options.logprobs === null ? {} : { logprobs: [] as TokenLogprobs[] }) };
    for (;;) {
      await breathe();
      if (isCancelled()) throw new DOMException('the generation was cancelled', 'AbortError');
      const next = await model.next(generation);
      if (next === undefined) return { ...whole, ...JSON.parse(generation.finish() ?? '{}') };
      const piece = readPiece(next);
      whole.ids.push(...piece.ids);
      whole.logprobs?.push(...piece.logprobs);
      whole.text += piece.text;
      emit({ piece });
    }
  } finally {
    generation.free();
  }
}

/**
 * The engine's log-probabilities carry no ids, are absent where not asked for, and are `null` for a probability of 0, whose logarithm JSON lacks.
 * They are 32-bit numbers in the fewest digits, which rounding makes exact.
 */
function readPiece(json: string): Piece {
  const { ids, text, logprobs = [] } = JSON.parse(json) as EnginePiece;
  const named = logprobs.map(({ logprob, top }, i) => ({
    id: ids[i] as number,
    logprob: Math.fround(logprob ?? -Infinity),
    top: top.map(([id, logprob]) => [id, Math.fround(logprob)] as const),
  }));
  return { ids, text, logprobs: named };
}

async function profile({ promptTokens, tokens }: Calls['profile']['in']): Promise<Profile> {
  const report = await loaded().profile(JSON.stringify({ pp: promptTokens, tg: tokens }));
  return JSON.parse(report, (_, value) => (isRecord(value) ? camelCased(value) : value));
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The engine's `total_ms` is `totalMs` here. */
function camelCased(record: Record<string, unknown>): Record<string, unknown> {
  const name = (key: string) => key.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [name(key), value]));
}

function loaded(): Model {
  if (model === undefined) throw new Error('no model is loaded');
  return model;
}

/** Lets messages that wait, such as a cancellation, be received. */
function breathe(): Promise<void> {
  return new Promise((resolve) => {
    channel.port1.onmessage = () => resolve();
    channel.port2.postMessage(null);
  });
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
