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
  /**
   * Generations that may run at once, an integer from 1 to 64: each has a context of its own, and a step of the device goes on with all of them. Default 1,
   * where generations run one after another.
   */
  readonly parallel?: number;
  /**
   * Bytes of the cache that they share, at least 1. Default: what as many full contexts need. With less, the youngest wait where it is full. Where
   * `contextLength` is not given it is as large as fits.
   */
  readonly cacheBytes?: number;
  /** What the cache holds: half floats, or bytes with scales, which take about half as much. Default `f16`. */
  readonly kv?: 'f16' | 'q8_0';
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
  /** Generations that may run at once. */
  readonly parallel: number;
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

/** A function that the model may ask to have called. */
export interface Tool {
  readonly type: 'function';
  readonly function: {
    /** 1 to 64 of the characters a-z A-Z 0-9 _ -. */
    readonly name: string;
    /** What it does, for the model to read. */
    readonly description?: string;
    /** A JSON schema of type `object`; without one it takes nothing. */
    readonly parameters?: object;
  };
}

/** Whether the model may call tools (`auto`), may not (`none`), has to call at least one (`required`), or the one named. */
export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string };

/** A call that the model asks for. */
export interface ToolCall {
  /** Its name in the conversation. */
  readonly id: string;
  /** The tool's. */
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** A part of an answer. A call comes whole; a problem says why something that looks like a call is none: its text is content. */
export type Part =
  | { readonly type: 'content' | 'reasoning'; readonly text: string }
  | { readonly type: 'toolCall'; readonly call: ToolCall }
  | { readonly type: 'problem'; readonly problem: string };

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
   * both adapt to the device; where one is, the other is 1 token or 4 submits. Not where generations run at once.
   */
  readonly burst?: number;
  /** Submits in flight, an integer from 1 to 4, for measuring; 1 waits for each before the next. See `burst`. */
  readonly inFlight?: number;
  /** Takes a string prompt as it is, without the model's chat template. Default false. */
  readonly raw?: boolean;
  /** Functions that the model may ask to have called. Not with `raw`. */
  readonly tools?: readonly Tool[];
  /** Whether it may, or has to; `none` leaves the tools out. Default `auto`. */
  readonly toolChoice?: ToolChoice;
  /** A JSON schema that the answer has to be valid under. Of this and the next three, at most one can be given. */
  readonly jsonSchema?: object | boolean;
  /** `json_object` holds the answer to a JSON object. Default `text`. */
  readonly responseFormat?: 'text' | 'json_object';
  /** A regular expression, in the syntax of Rust's crate `regex`, that has to match the whole answer. */
  readonly regex?: string;
  /** A grammar of the answer in llguidance's variant of Lark. */
  readonly grammar?: string;
  /** Aborting ends the generation; the iterator and `result` reject with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** Options of `generateMany`: those of `generate`, and how many completions each prompt has. */
export interface GenerateManyOptions extends GenerateOptions {
  /** Completions of each prompt, an integer from 1 to 1024; completion `i` has the seed `seed + i`. Default 1. */
  readonly n?: number;
}

/** Options of `embed`. */
export interface EmbedOptions {
  /** Which hidden states are the embedding: the last token's, or the mean of all. Default `last`. */
  readonly pooling?: 'last' | 'mean';
  /** Whether embeddings have the length 1. Default true. */
  readonly normalise?: boolean;
  /** Aborting rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** Options of `rerank`. */
export interface RerankOptions {
  /** What makes a document relevant. Default: that of a web search. */
  readonly instruction?: string;
  /** Aborting rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** How well a document answers a query. */
export interface Ranked {
  /** Its place among the documents given. */
  readonly index: number;
  /** How likely the model takes it for relevant, 0 to 1. */
  readonly score: number;
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

/** Why a generation ended: the model's end token, a token of `stopIds`, a text of `stop`, `maxTokens`, a full context, or a grammar that nothing more fits. */
export type StopReason = 'eos' | 'stop_id' | 'stop_string' | 'max_tokens' | 'context_full' | 'grammar_end';

export interface GenerationResult {
  /** All the model wrote, as it wrote it. */
  readonly text: string;
  /** Of that, the text for the reader. */
  readonly content: string;
  /** What the model thought before it answered; empty where it does not mark such thoughts. */
  readonly reasoning: string;
  /** Calls of tools. */
  readonly toolCalls: readonly ToolCall[];
  /** Why what looked like calls is none. */
  readonly problems: readonly string[];
  /** The answer as a message, for the conversation to go on. */
  readonly message: Message;
  readonly ids: readonly number[];
  readonly stopReason: StopReason;
  readonly timings: Timings;
  /** `null` where generations run at once, whose steps nobody has alone: see `Model.stats`. */
  readonly stats: Stats | null;
  /** Of each id, where they were asked for. */
  readonly logprobs?: readonly TokenLogprobs[];
  /** Set where the device drew a token that cannot be, so that the rest was drawn on the CPU: what it drew. Such a device computes wrongly. */
  readonly fallback: string | null;
}

/** What the engine has done since the model was loaded. */
export interface EngineStats {
  /** Of the GPU; zeros on the CPU. */
  readonly device: DeviceStats;
  /** Of requests that share steps: generations where they run at once, embeddings and scores. `null` where the engine has answered a single prompt last. */
  readonly scheduler: SchedulerStats | null;
  /** The longest of the steps that they shared: a chunk of a prompt, and tokens of all that draw. */
  readonly longestStepMs: number;
  /** Bytes of wasm memory, which only grows. */
  readonly wasmBytes: number;
}

export interface DeviceStats {
  /** Command buffers submitted. */
  readonly submits: number;
  /** Compute dispatches in them. */
  readonly dispatches: number;
  /** Buffers mapped for reading, and bytes read. */
  readonly maps: number;
  readonly bytesRead: number;
  /** Buffers made, and their bytes. Both stay as they are while the model answers. */
  readonly buffersCreated: number;
  readonly bufferBytes: number;
  readonly bindGroupsCreated: number;
  readonly querySetsCreated: number;
}

export interface SchedulerStats {
  /** Steps taken. */
  readonly steps: number;
  /** Chunks of prompts fed, and tokens in them. */
  readonly chunks: number;
  readonly prefilled: number;
  /** Submits that drew, and tokens drawn. */
  readonly bursts: number;
  readonly drawn: number;
  /** Most requests that drew at once. */
  readonly mostRows: number;
  /** Times a request had to give its part of the cache to an older one. */
  readonly preemptions: number;
  /** Pages copied because another request went on from their beginning. */
  readonly copies: number;
  /** Requests that run, and that wait. */
  readonly running: number;
  readonly waiting: number;
  /** Pages of the cache, 64 positions each. */
  readonly pages: {
    readonly inUse: number;
    /** Not in use, but found again by prompts that begin with the same tokens. */
    readonly cached: number;
    readonly free: number;
    /** Times one was found. */
    readonly hits: number;
    /** Times one was given up. */
    readonly evictions: number;
  };
}
