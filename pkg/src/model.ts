/** A loaded model. */

import { choice, count, flag, integer, known, nonEmpty, textList } from './check.js';
import type { Connection } from './connection.js';
import { BlueshiftError } from './errors.js';
import { Generation } from './generation.js';
import { checkGenerate, engineOptions, enginePrompt, splitMany } from './options.js';
import type { Profile, ProfileOptions } from './profile.js';
import type {
  EmbedOptions,
  EngineStats,
  GenerateManyOptions,
  GenerateOptions,
  Message,
  ModelInfo,
  Ranked,
  RerankOptions,
} from './types.js';

/** Every option of `profile`, `embed` and `rerank`. */
const PROFILE_OPTIONS = Object.keys({
  promptTokens: true,
  tokens: true,
  signal: true,
} satisfies Record<keyof ProfileOptions, true>);
const EMBED_OPTIONS = Object.keys({ pooling: true, normalise: true, signal: true } satisfies Record<keyof EmbedOptions, true>);
const RERANK_OPTIONS = Object.keys({ instruction: true, signal: true } satisfies Record<keyof RerankOptions, true>);

export class Model {
  /** What is loaded and what executes it. */
  readonly info: ModelInfo;
  readonly #connection: Connection;
  #warned = false;

  /** @internal Models come from `load`. */
  constructor(info: ModelInfo, connection: Connection) {
    this.info = info;
    this.#connection = connection;
  }

  /**
   * Generates text. A string is one message of the user, or with `raw` the very text to go on from; a list of messages
   * goes through the model's chat template. As many generations run at once as `load` was told with `parallel`; others wait.
   */
  generate(input: string | readonly Message[], options: GenerateOptions = {}): Generation {
    checkGenerate(options);
    return this.#generate(input, options);
  }

  /** Generations of several prompts, `n` of each, prompt by prompt: each with its own stream, result and failure. */
  generateMany(inputs: readonly (string | readonly Message[])[], options: GenerateManyOptions = {}): Generation[] {
    const [n, common] = splitMany(options);
    if (!Array.isArray(inputs)) throw new BlueshiftError('BadArgument', `the prompts are ${inputs}, expected a list of prompts`);
    const seed = integer('seed', common.seed ?? 0, 0, Number.MAX_SAFE_INTEGER - n + 1);
    const completions = Array.from({ length: n }, (_, i) => ({ ...common, seed: seed + i }));
    // All are checked before the first one starts.
    for (const input of inputs) enginePrompt(input, common);
    return inputs.flatMap((input) => completions.map((completion) => this.#generate(input, completion)));
  }

  #generate(input: string | readonly Message[], options: GenerateOptions): Generation {
    const args = { prompt: enginePrompt(input, options), options: engineOptions(options, this.info.parallel) };
    return new Generation(async (onPiece, signal) => {
      const onEvent = (event: object) => 'piece' in event && onPiece(event.piece as never);
      const result = await this.#connection.call('generate', args, onEvent, signal);
      this.#warn(result.fallback);
      return result;
    }, options.signal);
  }

  /** An embedding of each text: hidden states after the model's last layer and norm, as many numbers as the model is wide. */
  async embed(texts: readonly string[], options: EmbedOptions = {}): Promise<Float32Array[]> {
    known('embed', options, EMBED_OPTIONS);
    const args = {
      texts: textList('texts', texts),
      pooling: choice('pooling', options.pooling ?? 'last', ['last', 'mean']),
      normalise: flag('normalise', options.normalise ?? true),
    };
    return this.#connection.call('embed', args, undefined, options.signal);
  }

  /** How relevant documents are for a query, the most relevant first, by a model that was trained to tell: a Qwen3 reranker. */
  async rerank(query: string, documents: readonly string[], options: RerankOptions = {}): Promise<Ranked[]> {
    known('rerank', options, RERANK_OPTIONS);
    const { instruction, signal } = options;
    const args = {
      query: nonEmpty('query', query),
      documents: textList('documents', documents),
      instruction: instruction === undefined ? null : nonEmpty('instruction', instruction),
    };
    const scores = await this.#connection.call('rerank', args, undefined, signal);
    return scores.map((score, index) => ({ index, score })).sort((a, b) => b.score - a.score);
  }

  /** The token ids of a text, as `generate` with `raw` would read it. */
  tokenize(text: string): Promise<Uint32Array> {
    return this.#connection.call('tokenize', { text });
  }

  /** What the engine has done so far. */
  stats(): Promise<EngineStats> {
    return this.#connection.call('stats', {});
  }

  /**
   * Generates tokens from a made-up prompt, several times, and tells where the time goes, by operation and by layer. It waits until nothing else is
   * under way.
   */
  async profile(options: ProfileOptions = {}): Promise<Profile> {
    known('profile', options, PROFILE_OPTIONS);
    const { promptTokens, tokens, signal } = options;
    const args = { promptTokens: count('promptTokens', promptTokens ?? 64), tokens: integer('tokens', tokens ?? 32, 2, 2 ** 32 - 1) };
    return this.#connection.call('profile', args, undefined, signal);
  }

  /** Frees the model and ends its worker. Pending and later calls reject with the code `Disposed`. */
  dispose(): void {
    this.#connection.close(new BlueshiftError('Disposed', 'the model was disposed'));
  }

  /** Tells whoever looks at the console, once a model: each result says it as well. */
  #warn(fallback: string | null): void {
    if (fallback === null || this.#warned) return;
    this.#warned = true;
    console.warn(`blueshift: ${fallback}; the rest was drawn on the CPU`);
  }
}
