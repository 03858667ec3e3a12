/** From the options of a generation to what the engine takes: defaults, and checks of every range. */

import { bad, biases, choice, count, flag, integer, known, nonEmpty, number, objects, share, string, texts, tokenIds } from './check.js';
import { BlueshiftError } from './errors.js';
import type { EngineOptions, EngineToolChoice, Prompt, Shape } from './protocol.js';
import type { GenerateManyOptions, GenerateOptions, Message, ToolChoice } from './types.js';

/** Every option of `generate`. */
const GENERATE = {
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
  tools: true,
  toolChoice: true,
  jsonSchema: true,
  responseFormat: true,
  regex: true,
  grammar: true,
  signal: true,
} satisfies Record<keyof GenerateOptions, true>;

const GENERATE_OPTIONS = Object.keys(GENERATE);
const GENERATE_MANY_OPTIONS = Object.keys({ ...GENERATE, n: true } satisfies Record<keyof GenerateManyOptions, true>);

/** Refuses options that `generate` does not have. */
export function checkGenerate(options: GenerateOptions): void {
  known('generate', options, GENERATE_OPTIONS);
}

/** Checks the options of `generateMany`; the completions of each prompt, and the options of a generation. */
export function splitMany(options: GenerateManyOptions): [n: number, GenerateOptions] {
  known('generateMany', options, GENERATE_MANY_OPTIONS);
  const { n, ...rest } = options;
  return [integer('n', n ?? 1, 1, 1024), rest];
}

/** What the engine takes, where `parallel` generations may run at once. Throws `BadArgument` for a value outside its range. */
export function engineOptions(options: GenerateOptions, parallel: number): EngineOptions {
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
    shape: shape(options),
    burst: orNull(options.burst, (burst) => integer('burst', alone('burst', burst, parallel), 1, 64)),
    inFlight: orNull(options.inFlight, (inFlight) => integer('inFlight', alone('inFlight', inFlight, parallel), 1, 4)),
  };
}

/** A prompt as the engine takes it. */
export function enginePrompt(input: string | readonly Message[], options: GenerateOptions): Prompt {
  const raw = flag('raw', options.raw ?? false);
  const tools = objects('tools', options.tools ?? []);
  const toolChoice = chosenTool(options.toolChoice ?? 'auto');
  if (raw && tools.length > 0) throw new BlueshiftError('BadArgument', 'raw takes no tools: a model is told of them by its chat template');
  if (typeof input === 'string') return raw ? { text: input } : { messages: [{ role: 'user', content: input }], tools, toolChoice };
  if (!Array.isArray(input)) throw bad('the prompt', input, 'a string or a list of messages');
  if (raw) throw new BlueshiftError('BadArgument', 'raw takes a string, not a list of messages');
  return { messages: input, tools, toolChoice };
}

function chosenTool(given: ToolChoice): EngineToolChoice {
  if (typeof given === 'object' && given !== null) return { name: nonEmpty('the name of toolChoice', given.name) };
  return choice<'auto' | 'none' | 'required'>('toolChoice', given, ['auto', 'none', 'required']);
}

/** What the answer has to look like: one way to say it at most. */
function shape({ jsonSchema, responseFormat, regex, grammar, toolChoice }: GenerateOptions): Shape | null {
  const format = choice('responseFormat', responseFormat ?? 'text', ['text', 'json_object']);
  const asked = {
    ...(jsonSchema === undefined ? {} : { jsonSchema: { jsonSchema: schema(jsonSchema) } }),
    ...(format === 'text' ? {} : { responseFormat: 'jsonObject' as const }),
    ...(regex === undefined ? {} : { regex: { regex: string('regex', regex) } }),
    ...(grammar === undefined ? {} : { grammar: { lark: nonEmpty('grammar', grammar) } }),
  };
  const mustCall = toolChoice !== undefined && toolChoice !== 'auto' && toolChoice !== 'none';
  const names = [...Object.keys(asked), ...(mustCall ? ['toolChoice'] : [])];
  if (names.length > 1) throw new BlueshiftError('BadArgument', `${names.join(' and ')} each say what the answer looks like, expected one of them`);
  return Object.values(asked)[0] ?? null;
}

function schema(value: unknown): object | boolean {
  if (typeof value === 'boolean' || (typeof value === 'object' && value !== null && !Array.isArray(value))) return value;
  throw bad('jsonSchema', value, 'a JSON schema, an object or a boolean');
}

/** Generations that run at once share their steps, and none can say how many there are. */
function alone(name: string, value: number, parallel: number): number {
  if (parallel === 1) return value;
  throw bad(name, value, 'none where generations run at once');
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
