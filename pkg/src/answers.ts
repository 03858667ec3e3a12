/** Calls that the worker answers with the engine. */

import { breathe } from './breathe.js';
import type { Calls, Event, Piece } from './protocol.js';
import type { EngineFinish, EnginePiece, Turns } from './turns.js';
import type { GenerationResult, TokenLogprobs } from './types.js';

/** Answers a prompt: among others where `parallel` is above 1, else with the engine for itself. */
export async function generate(
  turns: Turns,
  parallel: number,
  { prompt, options }: Calls['generate']['in'],
  emit: (event: Event) => void,
  signal: AbortSignal,
): Promise<GenerationResult> {
  const whole = { ids: [] as number[], text: '', ...(options.logprobs === null ? {} : { logprobs: [] as TokenLogprobs[] }) };
  const onPiece = (found: EnginePiece) => {
    const piece = readPiece(found);
    whole.ids.push(...piece.ids);
    whole.logprobs?.push(...piece.logprobs);
    whole.text += found.text;
    emit({ piece });
  };
  const request = [JSON.stringify(prompt), JSON.stringify(options)] as const;
  const finish = await (parallel > 1
    ? turns.share<EngineFinish>((model) => model.submit(...request), signal, onPiece)
    : generateAlone(turns, request, signal, onPiece));
  return { ...whole, ...finish };
}

function generateAlone(
  turns: Turns,
  [prompt, options]: readonly [prompt: string, options: string],
  signal: AbortSignal,
  onPiece: (piece: EnginePiece) => void,
): Promise<EngineFinish> {
  return turns.alone(async (model) => {
    signal.throwIfAborted();
    const generation = model.start(prompt, options);
    try {
      for (;;) {
        await breathe();
        signal.throwIfAborted();
        const next = await model.next(generation);
        if (next === undefined) return JSON.parse(generation.finish() ?? '{}');
        onPiece(JSON.parse(next));
      }
    } finally {
      generation.free();
    }
  });
}

/**
 * The engine's log-probabilities carry no ids, are absent where not asked for, and are `null` for a probability of 0, whose logarithm JSON lacks.
 * They are 32-bit numbers in the fewest digits, which rounding makes exact.
 */
function readPiece({ ids, parts, logprobs = [] }: EnginePiece): Piece {
  const named = logprobs.map(({ logprob, top }, i) => ({
    id: ids[i] as number,
    logprob: Math.fround(logprob ?? -Infinity),
    top: top.map(([id, logprob]) => [id, Math.fround(logprob)] as const),
  }));
  return { ids, parts, logprobs: named };
}

export async function embed(turns: Turns, { texts, pooling, normalise }: Calls['embed']['in'], signal: AbortSignal): Promise<Float32Array[]> {
  const vectors = await all(texts, signal, (text, signal) =>
    turns.share<number[]>((model) => model.submit_embedding(text, JSON.stringify(pooling), normalise), signal),
  );
  return vectors.map((values) => Float32Array.from(values));
}

export function rerank(turns: Turns, { query, documents, instruction }: Calls['rerank']['in'], signal: AbortSignal): Promise<number[]> {
  return all(documents, signal, async (document, signal) =>
    Math.fround(await turns.share<number>((model) => model.submit_score(query, document, instruction ?? undefined), signal)),
  );
}

/** The results of one request for each item. Where one fails the others are cancelled. */
async function all<Item, T>(
  items: readonly Item[],
  signal: AbortSignal,
  request: (item: Item, signal: AbortSignal) => Promise<T>,
): Promise<T[]> {
  const controller = new AbortController();
  signal.addEventListener('abort', () => controller.abort(signal.reason), { once: true });
  try {
    return await Promise.all(items.map((item) => request(item, controller.signal)));
  } catch (error) {
    controller.abort(error);
    throw error;
  }
}

export async function stats(turns: Turns, memory: WebAssembly.Memory): Promise<Calls['stats']['out']> {
  const counted = await turns.between((model) => model.stats());
  return { ...inCamelCase(counted), longestStepMs: turns.longestStepMs, wasmBytes: memory.buffer.byteLength };
}

export async function profile(turns: Turns, { promptTokens, tokens }: Calls['profile']['in'], signal: AbortSignal): Promise<Calls['profile']['out']> {
  return turns.alone(async (model) => {
    signal.throwIfAborted();
    return inCamelCase(await model.profile(JSON.stringify({ pp: promptTokens, tg: tokens })));
  });
}

/** Reads JSON with the engine's own names: its `total_ms` is `totalMs` here. */
function inCamelCase(json: string): any {
  const name = (key: string) => key.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  const renamed = (record: object) => Object.fromEntries(Object.entries(record).map(([key, value]) => [name(key), value]));
  return JSON.parse(json, (_, value) => (typeof value === 'object' && value !== null && !Array.isArray(value) ? renamed(value) : value));
}
