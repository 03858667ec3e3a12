/** A loaded model. */

import { biases, count, integer, number, texts, tokenIds } from './check.js';
import type { Connection } from './connection.js';
import { BlueshiftError } from './errors.js';
import { Generation } from './generation.js';
import type { EngineOptions, Prompt } from './protocol.js';
import type { GenerateOptions, Message, ModelInfo, Profile, ProfileOptions } from './types.js';

export class Model {
  /** What is loaded and what executes it. */
  readonly info: ModelInfo;
  readonly #connection: Connection;

  /** @internal Models come from `load`. */
  constructor(info: ModelInfo, connection: Connection) {
    this.info = info;
    this.#connection = connection;
  }

  /**
   * Generates text. A string is one message of the user, or with `raw` the very text to go on from; a list of messages
   * goes through the model's chat template. Generations of one model run one after another.
   */
  generate(input: string | readonly Message[], options: GenerateOptions = {}): Generation {
    const args = { prompt: prompt(input, options.raw ?? false), options: engineOptions(options) };
    return new Generation((onPiece, signal) => {
      const onEvent = (event: object) => 'piece' in event && onPiece(event.piece as never);
      return this.#connection.call('generate', args, onEvent, signal);
    }, options.signal);
  }

  /** The token ids of a text, as `generate` with `raw` would read it. */
  tokenize(text: string): Promise<Uint32Array> {
    return this.#connection.call('tokenize', { text });
  }

  /** Generates tokens from a made-up prompt, several times, and tells where the time goes, by operation and by layer. */
  async profile({ promptTokens, tokens, signal }: ProfileOptions = {}): Promise<Profile> {
    const args = { promptTokens: count('promptTokens', promptTokens ?? 64), tokens: integer('tokens', tokens ?? 32, 2, 2 ** 32 - 1) };
    return this.#connection.call('profile', args, undefined, signal);
  }

  /** Frees the model and ends its worker. Pending and later calls reject with the code `Disposed`. */
  dispose(): void {
    this.#connection.close(new BlueshiftError('Disposed', 'the model was disposed'));
  }
}

function prompt(input: string | readonly Message[], raw: boolean): Prompt {
  if (typeof input !== 'string') {
    if (!Array.isArray(input)) throw new BlueshiftError('BadArgument', `the prompt is ${input}, expected a string or a list of messages`);
    if (raw) throw new BlueshiftError('BadArgument', 'raw takes a string, not a list of messages');
    return { messages: input };
  }
  return raw ? { text: input } : { messages: [{ role: 'user', content: input }] };
}

function engineOptions(options: GenerateOptions): EngineOptions {
  return {
    maxTokens: count('maxTokens', options.maxTokens ?? 256),
    temperature: number('temperature', options.temperature ?? 0, 0, 100),
    seed: integer('seed', options.seed ?? 0, 0, Number.MAX_SAFE_INTEGER),
    topK: integer('topK', options.topK ?? 0, 0, 2 ** 32 - 1),
    topP: number('topP', options.topP ?? 1, 0, 1),
    minP: number('minP', options.minP ?? 0, 0, 1),
    repeatPenalty: number('repeatPenalty', options.repeatPenalty ?? 1, 0.01, 100),
    frequencyPenalty: number('frequencyPenalty', options.frequencyPenalty ?? 0, -100, 100),
    presencePenalty: number('presencePenalty', options.presencePenalty ?? 0, -100, 100),
    penaltyWindow: integer('penaltyWindow', options.penaltyWindow ?? 64, 0, 4096),
    logitBias: biases('logitBias', options.logitBias ?? {}, 1000),
    suppress: tokenIds('suppress', options.suppress ?? []),
    stop: texts('stop', options.stop ?? []),
  };
}
