/** From the options of a generation to what the engine takes: defaults, and checks of every range. */

import { biases, count, flag, integer, known, number, share, texts, tokenIds } from './check.js';
import { BlueshiftError } from './errors.js';
import type { EngineOptions } from './protocol.js';
import type { GenerateOptions } from './types.js';

/** Every option of `generate`. */
const GENERATE_OPTIONS = Object.keys({
  maxTokens: true,
  temperature: true,
  seed: true,
  topK: true,
  topP: true,
  minP: true,
  typicalP: true,
  repeatPenalty: true,
  frequencyPenalty: true,
  presencePenalty: true,
  penaltyWindow: true,
  logitBias: true,
  suppress: true,
  stop: true,
  stopIds: true,
  logprobs: true,
  topLogprobs: true,
  burst: true,
  inFlight: true,
  raw: true,
  signal: true,
} satisfies Record<keyof GenerateOptions, true>);

/** What the engine takes. Throws `BadArgument` for an option that does not exist or a value outside its range. */
export function engineOptions(options: GenerateOptions): EngineOptions {
  known('generate', options, GENERATE_OPTIONS);
  return {
    maxTokens: count('maxTokens', options.maxTokens ?? 256),
    temperature: number('temperature', options.temperature ?? 0, 0, 100),
    seed: integer('seed', options.seed ?? 0, 0, Number.MAX_SAFE_INTEGER),
    topK: integer('topK', options.topK ?? 0, 0, 2 ** 32 - 1),
    topP: share('topP', options.topP ?? 1),
    minP: number('minP', options.minP ?? 0, 0, 1),
    typicalP: share('typicalP', options.typicalP ?? 1),
    repeatPenalty: number('repeatPenalty', options.repeatPenalty ?? 1, 0.01, 100),
    frequencyPenalty: number('frequencyPenalty', options.frequencyPenalty ?? 0, -100, 100),
    presencePenalty: number('presencePenalty', options.presencePenalty ?? 0, -100, 100),
    penaltyWindow: integer('penaltyWindow', options.penaltyWindow ?? 64, 0, 4096),
    logitBias: biases('logitBias', options.logitBias ?? {}, 1000),
    suppress: tokenIds('suppress', options.suppress ?? []),
    stop: texts('stop', options.stop ?? []),
    stopIds: tokenIds('stopIds', options.stopIds ?? []),
    logprobs: logprobs(options),
    burst: orNull(options.burst, (burst) => integer('burst', burst, 1, 64)),
    inFlight: orNull(options.inFlight, (inFlight) => integer('inFlight', inFlight, 1, 4)),
  };
}

/** What is not given is `null`, which JSON has. */
function orNull(value: number | undefined, check: (value: number) => number): number | null {
  return value === undefined ? null : check(value);
}

/** How many tokens are listed with each one's log-probability; `null` asks for none. A number of them asks for log-probabilities. */
function logprobs({ logprobs, topLogprobs }: GenerateOptions): number | null {
  const asked = flag('logprobs', logprobs ?? topLogprobs !== undefined);
  const top = integer('topLogprobs', topLogprobs ?? 0, 0, 20);
  if (!asked && topLogprobs !== undefined) {
    throw new BlueshiftError('BadArgument', `topLogprobs is ${top}, expected none where logprobs is false`);
  }
  return asked ? top : null;
}
