/** A stream of generated text. */

import { BlueshiftError } from './errors.js';
import type { Piece } from './protocol.js';
import type { GenerationResult, TokenLogprobs } from './types.js';

/**
 * The text of a generation as it arrives. It runs whether or not it is read; leaving a `for await` loop early ends it,
 * and `result` then rejects with the code `Cancelled`.
 */
export class Generation implements AsyncIterableIterator<string> {
  /** The whole result, once the generation has ended by itself. */
  readonly result: Promise<GenerationResult>;
  readonly #ids: number[] = [];
  readonly #logprobs: TokenLogprobs[] = [];
  readonly #texts: string[] = [];
  readonly #cancel: (reason: unknown) => void;
  #ended: { readonly error?: unknown } | undefined;
  /** Readers waiting for text; woken all at once, each then looks again. */
  #wake: (() => void)[] = [];

  /** `start` begins the generation; it is given where pieces go and the signal that ends it. */
  constructor(
    start: (onPiece: (piece: Piece) => void, signal: AbortSignal) => Promise<GenerationResult>,
    signal: AbortSignal | undefined,
  ) {
    const controller = new AbortController();
    this.#cancel = (reason) => controller.abort(reason);
    const follow = () => controller.abort(signal?.reason);
    if (signal?.aborted) follow();
    signal?.addEventListener('abort', follow, { once: true });
    this.result = start((piece) => this.#push(piece), controller.signal);
    this.result
      .then(() => this.#end({}), (error: unknown) => this.#end({ error }))
      .finally(() => signal?.removeEventListener('abort', follow));
  }

  /** The token ids generated so far. */
  get ids(): readonly number[] {
    return this.#ids;
  }

  /** Log-probabilities of the ids generated so far; empty where they were not asked for. */
  get logprobs(): readonly TokenLogprobs[] {
    return this.#logprobs;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<string, undefined>> {
    for (;;) {
      const value = this.#texts.shift();
      if (value !== undefined) return { done: false, value };
      if (this.#ended) {
        if ('error' in this.#ended) throw this.#ended.error;
        return { done: true, value: undefined };
      }
      await new Promise<void>((resolve) => this.#wake.push(resolve));
    }
  }

  async return(): Promise<IteratorResult<string, undefined>> {
    this.#texts.length = 0;
    if (!this.#ended) this.#cancel(new BlueshiftError('Cancelled', 'the generation was left before its end'));
    this.#ended = {};
    return { done: true, value: undefined };
  }

  #push(piece: Piece): void {
    if (this.#ended) return;
    this.#ids.push(...piece.ids);
    this.#logprobs.push(...piece.logprobs);
    if (piece.text !== '') this.#texts.push(piece.text);
    this.#notify();
  }

  #end(how: { readonly error?: unknown }): void {
    this.#ended ??= how;
    this.#notify();
  }

  #notify(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const wake of waiting) wake();
  }
}
