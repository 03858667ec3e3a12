/** The types of the public API. */

/** What executes the model. `auto` takes WebGPU where it is present and computes rightly, else the CPU. */
export type Backend = 'auto' | 'wgpu' | 'cpu';

/** How far a load has come. */
export interface LoadProgress {
  /** Bytes of weights loaded. */
  readonly bytes: number;
  /** Bytes of weights in all. */
  readonly total: number;
  /** The tensor being loaded. */
  readonly tensor: string;
}

export interface LoadOptions {
  /** Default `auto`. */
  readonly backend?: Backend;
  /** Tokens of context, an integer from 1 to 2^32 - 1. Default: what the model was trained on, at most 4,096. */
  readonly contextLength?: number;
  /** Called as the weights arrive, at most about 20 times a second, and once at the end. */
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Aborting stops the load and frees all it holds; `load` rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** What is loaded and what executes it. */
export interface ModelInfo {
  readonly name: string;
  /** `general.architecture` of the file. */
  readonly architecture: string;
  /** Number of weights. */
  readonly parameters: number;
  readonly backend: 'wgpu' | 'cpu';
  /** The GPU's name as the browser gives it, or the CPU's description. */
  readonly adapter: string;
  /** Whether the device passed the self-test: its results equal the reference's bit for bit. */
  readonly exact: boolean;
  /** Tokens of context. */
  readonly contextLength: number;
  /** Tokens in the vocabulary. */
  readonly vocabularySize: number;
  /** Why `auto` took the CPU, where it did. */
  readonly fallbackReason: string | null;
}

/** One message of a chat. */
export interface Message {
  readonly role: 'system' | 'user' | 'assistant' | 'tool' | (string & {});
  readonly content: string;
  /** What else the model's template reads, such as `tool_calls`; values that JSON can express. */
  readonly [field: string]: unknown;
}

export interface GenerateOptions {
  /** The most tokens to generate, an integer from 1 to 2^32 - 1. Default 256. */
  readonly maxTokens?: number;
  /** Divides the logits, from 0 to 100; 0 takes the likeliest token each time. Default 0. */
  readonly temperature?: number;
  /** Seed of the random draws, an integer from 0 to 2^53 - 1. Default 0. */
  readonly seed?: number;
  /** The likeliest tokens kept in a draw; 0 keeps all, 1 takes the likeliest. Default 0. */
  readonly topK?: number;
  /** The probability mass kept in a draw, above 0 and at most 1; 1 keeps all. Default 1. */
  readonly topP?: number;
  /** The least probability kept in a draw, relative to the largest one, from 0 to 1; 0 keeps all. Default 0. */
  readonly minP?: number;
  /** The probability mass kept of the tokens whose surprise is nearest to the expected one, above 0 and at most 1; 1 keeps all. Default 1. */
  readonly typicalP?: number;
  /** Divides the positive and multiplies the negative logits of recent tokens, from 0.01 to 100; 1 changes nothing. Default 1. */
  readonly repeatPenalty?: number;
  /** Subtracted from a logit for each time its token is among the recent ones, from -100 to 100. Default 0. */
  readonly frequencyPenalty?: number;
  /** Subtracted from the logits of recent tokens, from -100 to 100. Default 0. */
  readonly presencePenalty?: number;
  /** How many tokens, those of the prompt included, are recent; at most 4096. Default 64. */
  readonly penaltyWindow?: number;
  /** Added to the logits of tokens, by token id: -1000 to 1000. At most 1024 tokens together with `suppress`. */
  readonly logitBias?: Readonly<Record<number, number>>;
  /** Token ids that are never generated. */
  readonly suppress?: readonly number[];
  /** A text or texts that end the generation, none of them empty; they are not part of the result. */
  readonly stop?: string | readonly string[];
  /** Token ids that end the generation, besides the model's own end tokens; the one drawn is among the result's ids. */
  readonly stopIds?: readonly number[];
  /** Gives the log-probability of each token, at the cost of a round trip to the device for each. Default false. */
  readonly logprobs?: boolean;
  /** How many of the likeliest tokens are listed with each token, an integer from 0 to 20. Asks for `logprobs`. Default 0. */
  readonly topLogprobs?: number;
  /**
   * Tokens decoded a submit, an integer from 1 to 64, for measuring: it changes the speed, never a token. Where neither this nor `inFlight` is given
   * both adapt to the device; where one is, the other is 1 token or 4 submits.
   */
  readonly burst?: number;
  /** Submits in flight, an integer from 1 to 4, for measuring; 1 waits for each before the next. See `burst`. */
  readonly inFlight?: number;
  /** Takes a string prompt as it is, without the model's chat template. Default false. */
  readonly raw?: boolean;
  /** Aborting ends the generation; the iterator and `result` reject with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** What to profile. */
export interface ProfileOptions {
  /** Tokens of the prompt, an integer from 1 to 2^32 - 1. Default 64. */
  readonly promptTokens?: number;
  /** Tokens generated, an integer from 2 to 2^32 - 1. Default 32. */
  readonly tokens?: number;
  /** Aborting rejects with the signal's reason; the model is free again when the profile has ended. */
  readonly signal?: AbortSignal;
}

/** A part of a generation: up to the first token, or after it. */
export type Phase = 'prefill' | 'decode';

/** The time of a phase. */
export interface PhaseTime {
  readonly phase: Phase;
  /** Tokens read (prefill) or generated (decode). */
  readonly tokens: number;
  /** Time the device was busy with the same work while single operations were not timed, where it can tell. */
  readonly gpuMs: number | null;
  /** Time of all operations, where they were timed. */
  readonly sumOfOpsMs: number | null;
  /** `sumOfOpsMs` over `gpuMs`. */
  readonly ratio: number | null;
}

/** The time of the operations of one label. */
export interface OpTime {
  readonly phase: Phase;
  /** The kind of operation, such as `matmul`. */
  readonly op: string;
  /** The kind, or the kind with role, format and shape, such as `matmul ffn_down q4_1 576x1536`. */
  readonly label: string;
  /** How many ran. */
  readonly count: number;
  readonly totalMs: number;
  readonly meanUs: number;
  /** Part of the phase's operations, 0 to 1. */
  readonly share: number;
  /** Bytes of weights read while decoding. */
  readonly bytes: number | null;
  /** The same in gigabytes a second. */
  readonly gbS: number | null;
}

/** The time of a layer's operations. */
export interface LayerTime {
  readonly phase: Phase;
  readonly layer: number;
  readonly count: number;
  readonly totalMs: number;
  /** Part of the phase's operations, 0 to 1. */
  readonly share: number;
}

/** Where the time of a generation goes. */
export interface Profile {
  /**
   * How operations were timed: by the GPU's timestamps; by the clock around many repetitions of each, where the browser has no timestamps or
   * rounds them (decoding only); or by the clock, on the CPU.
   */
  readonly method: 'timestamps' | 'batches' | 'clock';
  /** Tokens generated after the first. */
  readonly tokens: number;
  readonly gpuMs: number | null;
  /** What timing an operation adds to it, measured on empty ones; it is taken off all times. */
  readonly timingUs: number;
  readonly sumOfOpsMs: number;
  readonly ratio: number | null;
  readonly phases: readonly PhaseTime[];
  /** By kind of operation, those of a phase together, the longest first. */
  readonly kernels: readonly OpTime[];
  /** By operation, in the same order. */
  readonly ops: readonly OpTime[];
  readonly layers: readonly LayerTime[];
}

/** Where the time went. */
export interface Timings {
  readonly promptTokens: number;
  /** Of these, read before and still in the cache. */
  readonly cachedTokens: number;
  /** Time to read the prompt. */
  readonly prefillMs: number;
  /** Time from the request to the first token. */
  readonly firstTokenMs: number;
  /** Tokens after the first. */
  readonly decodeTokens: number;
  /** Time they took. */
  readonly decodeMs: number;
}

/** What the decode pipeline did. A submit decodes one token or several: a burst. */
export interface Stats {
  /** Bursts submitted. */
  readonly bursts: number;
  /** Of those read, bursts after which another one was in flight already, so that the device did not wait for the page. */
  readonly overlappedBursts: number;
  /** Most tokens a burst. */
  readonly longestBurst: number;
  /** Most bursts in flight. */
  readonly deepest: number;
  /** Tokens decoded past the end, which nobody wanted any more. */
  readonly discardedSteps: number;
  /** Time spent recording and submitting. */
  readonly recordMs: number;
  /** Time spent waiting for results. */
  readonly readbackWaitMs: number;
  /** Mean time from submitting a burst to having its tokens. */
  readonly latencyMs: number;
}

/** How likely a token was, before temperature, penalties, biases and filters: natural logarithms of probabilities. */
export interface TokenLogprobs {
  readonly id: number;
  /** Of the token drawn; -Infinity where the probability is 0. */
  readonly logprob: number;
  /** The likeliest tokens, as many as `topLogprobs` asks for. */
  readonly top: readonly (readonly [id: number, logprob: number])[];
}

/** Why a generation ended: the model's end token, a token of `stopIds`, a text of `stop`, `maxTokens`, or a full context. */
export type StopReason = 'eos' | 'stop_id' | 'stop_string' | 'max_tokens' | 'context_full';

export interface GenerationResult {
  readonly text: string;
  readonly ids: readonly number[];
  readonly stopReason: StopReason;
  readonly timings: Timings;
  readonly stats: Stats;
  /** Of each id, where they were asked for. */
  readonly logprobs?: readonly TokenLogprobs[];
  /** Set where the device drew a token that cannot be, so that the rest was drawn on the CPU: what it drew. Such a device computes wrongly. */
  readonly fallback: string | null;
}
