/** The messages between the page and its worker. Every request has an id of its own; replies carry it back. */

import type { Profile } from './profile.js';
import type {
  Backend,
  EngineStats,
  GenerationResult,
  LoadProgress,
  Message,
  ModelInfo,
  Part,
  TokenLogprobs,
  Tool,
} from './types.js';

/** What a prompt is made of. */
export type Prompt =
  | { readonly messages: readonly Message[]; readonly tools: readonly Tool[]; readonly toolChoice: EngineToolChoice }
  | { readonly text: string };

/** What an answer has to look like. */
export type Shape =
  | 'jsonObject'
  | { readonly jsonSchema: object | boolean }
  | { readonly regex: string }
  | { readonly lark: string };

/** Which tools may be called, as the engine takes it. */
export type EngineToolChoice = 'auto' | 'none' | 'required' | { readonly name: string };

/** A generation's options as the engine takes them. */
export interface EngineOptions {
  readonly maxTokens: number;
  readonly temperature: number;
  readonly seed: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly typicalP: number;
  readonly repeatPenalty: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly penaltyWindow: number;
  readonly logitBias: readonly (readonly [id: number, bias: number])[];
  readonly suppress: readonly number[];
  readonly stop: readonly string[];
  readonly stopIds: readonly number[];
  /** How many of the likeliest tokens are listed with each; `null` asks for no log-probabilities. */
  readonly logprobs: number | null;
  /** `null` for any. */
  readonly shape: Shape | null;
  /** Steps a submit; `null` leaves it to the engine, as it does below. */
  readonly burst: number | null;
  /** Submits in flight. */
  readonly inFlight: number | null;
}

/** How a model is loaded, as the engine takes it. */
export interface EngineLoad {
  readonly backend: Backend;
  readonly contextLength: number | null;
  readonly parallel: number;
  readonly cacheBytes: number | null;
  readonly kv: 'f16' | 'q8_0';
}

/** Calls by name: what goes in, and what comes back when it is done. */
export interface Calls {
  load: { in: EngineLoad & { readonly source: string | Blob }; out: ModelInfo };
  tokenize: { in: { readonly text: string }; out: Uint32Array };
  profile: { in: { readonly promptTokens: number; readonly tokens: number }; out: Profile };
  generate: { in: { readonly prompt: Prompt; readonly options: EngineOptions }; out: GenerationResult };
  embed: { in: { readonly texts: readonly string[]; readonly pooling: 'last' | 'mean'; readonly normalise: boolean }; out: Float32Array[] };
  /** The scores of the documents, in their order. */
  rerank: { in: { readonly query: string; readonly documents: readonly string[]; readonly instruction: string | null }; out: number[] };
  stats: { in: object; out: EngineStats };
}

export type CallName = keyof Calls;

/** Page to worker. `cancel` names the request it ends. */
export type Request =
  | { [Name in CallName]: { readonly id: number; readonly call: Name; readonly args: Calls[Name]['in'] } }[CallName]
  | { readonly id: number; readonly call: 'cancel' };

/** Decoded tokens; the parts may lag behind the ids until a character is complete, and it is known whose it is. */
export interface Piece {
  readonly ids: readonly number[];
  readonly parts: readonly Part[];
  /** Of each id where they were asked for, else empty. */
  readonly logprobs: readonly TokenLogprobs[];
}

/** What arrives between a request and its end. */
export type Event = { readonly progress: LoadProgress } | { readonly piece: Piece };

/** Worker to page. */
export type Reply =
  | { readonly id: number; readonly event: Event }
  | { readonly id: number; readonly done: Calls[CallName]['out'] }
  | { readonly id: number; readonly error: { readonly code: string; readonly message: string } }
  /** The worker cannot go on. */
  | { readonly crash: string };
