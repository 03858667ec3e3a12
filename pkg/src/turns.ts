/** Who uses the engine when: what needs it alone, and requests that share its steps. */

import type { GenerationResult, Part, TokenLogprobs } from './types.js';
import type { Model } from './wasm/blueshift.js';

/** Tokens as the engine gives them. */
export interface EnginePiece {
  readonly ids: readonly number[];
  readonly text: string;
  readonly parts: readonly Part[];
  readonly logprobs?: readonly { readonly logprob: number | null; readonly top: TokenLogprobs['top'] }[];
}

/** How an answer ended, as the engine tells it. */
export type EngineFinish = Omit<GenerationResult, 'ids' | 'text' | 'logprobs'>;

/** What the engine tells of a request. All but pieces end it. */
type Told = { readonly request: number } & (
  | { readonly piece: EnginePiece }
  | { readonly finish: EngineFinish }
  | { readonly embedding: readonly number[] }
  | { readonly score: number }
  | { readonly error: { readonly code: string; readonly message: string } }
);

/** A request under way. */
interface Request {
  readonly onPiece: (piece: EnginePiece) => void;
  readonly resolve: (value: never) => void;
  readonly reject: (reason: unknown) => void;
}

/** Something that is done when its turn comes; it never fails. */
interface Turn {
  readonly alone: boolean;
  readonly act: () => Promise<void> | void;
}

/**
 * The engine's turns. While requests are under way it takes step after step, and messages are received between them. The engine cannot be asked anything
 * within a step, so whatever arrives waits for its end, first come first served.
 */
export class Turns {
  readonly #model: Model;
  readonly #breathe: () => Promise<void>;
  readonly #waiting: Turn[] = [];
  readonly #requests = new Map<number, Request>();
  #isRunning = false;
  #longestStepMs = 0;

  /** `breathe` lets messages be received. */
  constructor(model: Model, breathe: () => Promise<void>) {
    this.#model = model;
    this.#breathe = breathe;
  }

  /** The longest step so far: as long, no message was received. */
  get longestStepMs(): number {
    return this.#longestStepMs;
  }

  /** Asks the engine something between two steps. */
  between<T>(action: (model: Model) => T): Promise<T> {
    return this.#turn(false, action);
  }

  /** Gives the engine to one alone, once no request is under way; what comes later waits for its end. */
  alone<T>(action: (model: Model) => Promise<T>): Promise<T> {
    return this.#turn(true, action);
  }

  /** Submits a request, whose number `submit` gives, and waits for its end. Aborting cancels it. */
  share<T>(submit: (model: Model) => number, signal: AbortSignal, onPiece: (piece: EnginePiece) => void = () => {}): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      let request: number | undefined;
      const start = this.between((model) => {
        signal.throwIfAborted();
        request = submit(model);
        this.#requests.set(request, { onPiece, resolve, reject });
      });
      start.catch(reject);
      const cancel = (model: Model) => {
        if (request === undefined || !this.#requests.delete(request)) return;
        reject(signal.reason);
        model.cancel(request);
      };
      // Ahead of those who wait for the requests to end.
      signal.addEventListener('abort', () => void this.#turn(false, cancel, true).catch(reject), { once: true });
    });
  }

  #turn<T>(alone: boolean, action: (model: Model) => T | Promise<T>, isFirst = false): Promise<T> {
    const done = new Promise<T>((resolve, reject) => {
      const act = async () => {
        try {
          resolve(await action(this.#model));
        } catch (error) {
          reject(error);
        }
      };
      if (isFirst) this.#waiting.unshift({ alone, act });
      else this.#waiting.push({ alone, act });
    });
    void this.#run();
    return done;
  }

  async #run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    while (this.#waiting.length > 0 || this.#requests.size > 0) {
      if (this.#requests.size > 0) {
        await this.#step();
        await this.#breathe();
      }
      await this.#takeTurns();
    }
    this.#isRunning = false;
  }

  async #takeTurns(): Promise<void> {
    for (;;) {
      const [next] = this.#waiting;
      if (next === undefined || (next.alone && this.#requests.size > 0)) return;
      this.#waiting.shift();
      await next.act();
    }
  }

  /** Goes a step on. Where the engine fails, every request does. */
  async #step(): Promise<void> {
    const start = performance.now();
    let told: readonly Told[];
    try {
      told = JSON.parse(await this.#model.step());
      this.#longestStepMs = Math.max(this.#longestStepMs, performance.now() - start);
    } catch (error) {
      for (const { reject } of this.#requests.values()) reject(error);
      this.#requests.clear();
      return;
    }
    for (const event of told) this.#tell(event);
  }

  #tell(event: Told): void {
    const request = this.#requests.get(event.request);
    if (request === undefined) return;
    if ('piece' in event) return request.onPiece(event.piece);
    this.#requests.delete(event.request);
    if ('error' in event) request.reject(event.error);
    else if ('finish' in event) request.resolve(event.finish as never);
    else if ('embedding' in event) request.resolve(event.embedding as never);
    else request.resolve(event.score as never);
  }
}
