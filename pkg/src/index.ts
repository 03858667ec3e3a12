/** Runs GGUF language models in the browser. */

import { address, choice, count, integer, known } from './check.js';
import { Connection } from './connection.js';
import { Model } from './model.js';
import type { Event } from './protocol.js';
import type { LoadOptions } from './types.js';

export { BlueshiftError, type ClientErrorCode } from './errors.js';
export type { Generation } from './generation.js';
export type { Model } from './model.js';
export type { LayerTime, OpTime, Phase, PhaseTime, Profile, ProfileOptions } from './profile.js';
export type {
  Backend,
  DeviceStats,
  EmbedOptions,
  EngineStats,
  GenerateManyOptions,
  GenerateOptions,
  GenerationResult,
  LoadOptions,
  LoadProgress,
  Message,
  ModelInfo,
  Part,
  Ranked,
  RerankOptions,
  SchedulerStats,
  Stats,
  StopReason,
  Timings,
  TokenLogprobs,
  Tool,
  ToolCall,
  ToolChoice,
} from './types.js';

/** Every option of `load`. */
const LOAD_OPTIONS = Object.keys({
  backend: true,
  contextLength: true,
  parallel: true,
  cacheBytes: true,
  kv: true,
  onProgress: true,
  signal: true,
} satisfies Record<keyof LoadOptions, true>);

/**
 * Loads a GGUF file into a worker of its own. An address is read by byte ranges (another origin must allow them with
 * CORS); a `File` or `Blob` is read in slices. The file is never held in memory as a whole.
 */
export async function load(source: string | URL | Blob, options: LoadOptions = {}): Promise<Model> {
  known('load', options, LOAD_OPTIONS);
  options.signal?.throwIfAborted();
  const args = {
    source: source instanceof Blob ? source : address(source),
    backend: choice('backend', options.backend ?? 'auto', ['auto', 'wgpu', 'cpu']),
    contextLength: options.contextLength === undefined ? null : count('contextLength', options.contextLength),
    parallel: integer('parallel', options.parallel ?? 1, 1, 64),
    cacheBytes: options.cacheBytes === undefined ? null : integer('cacheBytes', options.cacheBytes, 1, Number.MAX_SAFE_INTEGER),
    kv: choice('kv', options.kv ?? 'f16', ['f16', 'q8_0']),
  };
  const connection = new Connection();
  const onEvent = (event: Event) => 'progress' in event && options.onProgress?.(event.progress);
  try {
    return new Model(await connection.call('load', args, onEvent, options.signal), connection);
  } catch (error) {
    // A failed or aborted load leaves nothing worth keeping; ending the worker frees all of it.
    connection.close(error);
    throw error;
  }
}
