/** A stream of generated text. */

import { BlueshiftError } from './errors.js';
import type { Piece } from './protocol.js';
import type { GenerationResult, Part, TokenLogprobs } from './types.js';

/**
 * An answer as it arrives: its content, text for the reader, or all its parts. It runs whether or not it is read; leaving a `for await` loop early
 * ends it, and `result` then rejects with the code `Cancelled`.
 */
export class Generation implements AsyncIterableIterator<string> {
  /** The whole result, once the generation has ended by itself. */
  readonly result: Promise<GenerationResult>;
  readonly #ids: number[] = [];
  readonly #logprobs: TokenLogprobs[] = [];
  readonly #parts: Part[] = [];
  /** How many of the parts were read as text. */
  #read = 0;
  readonly #cancel: (reason: unknown) => void;
  #ended: { readonly error?: unknown } | undefined;
  /** Readers waiting for parts; woken all at once, each then looks again. */
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

  /** Content, reasoning, calls of tools and problems from the beginning on, as they arrive. */
  async *parts(): AsyncGenerator<Part, undefined> {
    let read = 0;
    try {
      while (await this.#has(read)) yield this.#parts[read++] as Part;
    } finally {
      this.#leave();
    }
    return undefined;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<string, undefined>> {
    while (await this.#has(this.#read)) {
      const part = this.#parts[this.#read++];
      if (part?.type === 'content') return { done: false, value: part.text };
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<string, undefined>> {
    this.#read = this.#parts.length;
    this.#leave();
    return { done: true, value: undefined };
  }

  /** Waits until there is a part `at`, or there will be none. */
  async #has(at: number): Promise<boolean> {
    while (at >= this.#parts.length) {
      if (this.#ended) {
        if ('error' in this.#ended) throw this.#ended.error;
        return false;
      }
      await new Promise<void>((resolve) => this.#wake.push(resolve));
    }
    return true;
  }

  #leave(): void {
    if (!this.#ended) this.#cancel(new BlueshiftError('Cancelled', 'the generation was left before its end'));
    this.#end({});
  }

  #push(piece: Piece): void {
    if (this.#ended) return;
    this.#ids.push(...piece.ids);
    this.#logprobs.push(...piece.logprobs);
    this.#parts.push(...piece.parts);
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
