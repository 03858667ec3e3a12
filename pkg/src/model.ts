/** A loaded model. */

import { count, flag, integer, known } from './check.js';
import type { Connection } from './connection.js';
import { BlueshiftError } from './errors.js';
import { Generation } from './generation.js';
import { engineOptions } from './options.js';
import type { Prompt } from './protocol.js';
import type { GenerateOptions, Message, ModelInfo, Profile, ProfileOptions } from './types.js';

/** Every option of `profile`. */
const PROFILE_OPTIONS = Object.keys({
  promptTokens: true,
  tokens: true,
  signal: true,
} satisfies Record<keyof ProfileOptions, true>);

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
   * goes through the model's chat template. Generations of one model run one after another.
   */
  generate(input: string | readonly Message[], options: GenerateOptions = {}): Generation {
    const checked = engineOptions(options);
    const args = { prompt: prompt(input, flag('raw', options.raw ?? false)), options: checked };
    return new Generation(async (onPiece, signal) => {
      const onEvent = (event: object) => 'piece' in event && onPiece(event.piece as never);
      const result = await this.#connection.call('generate', args, onEvent, signal);
      this.#warn(result.fallback);
      return result;
    }, options.signal);
  }

  /** The token ids of a text, as `generate` with `raw` would read it. */
  tokenize(text: string): Promise<Uint32Array> {
    return this.#connection.call('tokenize', { text });
  }

  /** Generates tokens from a made-up prompt, several times, and tells where the time goes, by operation and by layer. */
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

function prompt(input: string | readonly Message[], raw: boolean): Prompt {
  if (typeof input !== 'string') {
    if (!Array.isArray(input)) throw new BlueshiftError('BadArgument', `the prompt is ${input}, expected a string or a list of messages`);
    if (raw) throw new BlueshiftError('BadArgument', 'raw takes a string, not a list of messages');
    return { messages: input };
  }
  return raw ? { text: input } : { messages: [{ role: 'user', content: input }] };
}
