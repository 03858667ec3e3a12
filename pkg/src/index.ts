/** Runs GGUF language models in the browser. */

import { address, choice, count, known } from './check.js';
import { Connection } from './connection.js';
import { Model } from './model.js';
import type { Event } from './protocol.js';
import type { LoadOptions } from './types.js';

export { BlueshiftError, type ClientErrorCode } from './errors.js';
export type { Generation } from './generation.js';
export type { Model } from './model.js';
export type {
  Backend,
  GenerateOptions,
  GenerationResult,
  LayerTime,
  LoadOptions,
  LoadProgress,
  Message,
  ModelInfo,
  OpTime,
  Phase,
  PhaseTime,
  Profile,
  ProfileOptions,
  Stats,
  StopReason,
  Timings,
  TokenLogprobs,
} from './types.js';

/** Every option of `load`. */
const LOAD_OPTIONS = Object.keys({
  backend: true,
  contextLength: true,
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
