/** The types of profiles. */

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
