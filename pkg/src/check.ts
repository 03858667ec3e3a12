/** Checks of what callers give; what does not fit is refused with the range that does. */

import { BlueshiftError } from './errors.js';

/** The engine counts tokens in 32 bits. */
const MOST_TOKENS = 2 ** 32 - 1;

/** Refuses options that `what` does not have: most often a misspelt name. */
export function known(what: string, options: unknown, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null) throw bad(`the options of ${what}`, options, 'an object');
  const stranger = Object.keys(options).find((name) => !names.includes(name));
  if (stranger === undefined) return;
  throw new BlueshiftError('BadArgument', `${what} has no option ${JSON.stringify(stranger)}, its options are ${names.join(', ')}`);
}

/** A number of tokens, at least 1. */
export function count(name: string, value: unknown): number {
  return integer(name, value, 1, MOST_TOKENS);
}

/** An integer from `least` to `most`. */
export function integer(name: string, value: unknown, least: number, most: number): number {
  if (Number.isSafeInteger(value) && isWithin(value, least, most)) return value;
  throw bad(name, value, `an integer from ${least} to ${most}`);
}

/** A finite number from `least` to `most`. */
export function number(name: string, value: unknown, least: number, most: number): number {
  if (isWithin(value, least, most)) return value;
  throw bad(name, value, `a number from ${least} to ${most}`);
}

/** A share of the probability mass: above 0 and at most 1. */
export function share(name: string, value: unknown): number {
  if (isWithin(value, 0, 1) && value > 0) return value;
  throw bad(name, value, 'a number above 0, at most 1');
}

/** Yes or no. */
export function flag(name: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw bad(name, value, 'true or false');
}

/** A token id; whether the vocabulary has it, the engine finds. */
function tokenId(name: string, value: unknown): number {
  return integer(`a token id of ${name}`, value, 0, MOST_TOKENS);
}

/** Token ids. */
export function tokenIds(name: string, value: unknown): readonly number[] {
  if (Array.isArray(value)) return value.map((id) => tokenId(name, id));
  throw bad(name, value, 'an array of token ids');
}

/** What is added to logits, by token id: from `-most` to `most`. */
export function biases(name: string, value: unknown, most: number): readonly (readonly [id: number, bias: number])[] {
  if (typeof value !== 'object' || value === null) throw bad(name, value, 'an object with token ids as keys');
  return Object.entries(value).map(([id, bias]) => [tokenId(name, Number(id)), number(name, bias, -most, most)]);
}

/** A text or several, none empty. */
export function texts(name: string, value: unknown): readonly string[] {
  const list: unknown = typeof value === 'string' ? [value] : value;
  const isText = (text: unknown) => typeof text === 'string' && text !== '';
  if (Array.isArray(list) && list.every(isText)) return [...list];
  throw bad(name, value, 'a non-empty string or an array of them');
}

/** Texts, none empty. */
export function textList(name: string, value: unknown): readonly string[] {
  if (Array.isArray(value)) return value.map((text, i) => nonEmpty(`${name}[${i}]`, text));
  throw bad(name, value, 'an array of non-empty strings');
}

/** A text. */
export function string(name: string, value: unknown): string {
  if (typeof value === 'string') return value;
  throw bad(name, value, 'a string');
}

/** A text that is not empty. */
export function nonEmpty(name: string, value: unknown): string {
  if (typeof value === 'string' && value !== '') return value;
  throw bad(name, value, 'a non-empty string');
}

/** Objects; what is in them, the engine checks. */
export function objects<Item extends object>(name: string, value: readonly Item[]): readonly Item[] {
  if (Array.isArray(value) && value.every((item) => typeof item === 'object' && item !== null)) return value;
  throw bad(name, value, 'an array of objects');
}

/** One of some words. */
export function choice<Word extends string>(name: string, value: Word, words: readonly Word[]): Word {
  if (words.includes(value)) return value;
  throw bad(name, value, `one of ${words.join(', ')}`);
}

/** An address, made absolute; a relative one is taken from the page's or the worker's own. */
export function address(value: string | URL): string {
  try {
    return new URL(value, globalThis.document?.baseURI ?? globalThis.location?.href).href;
  } catch {
    throw bad('source', value, 'an address, a File or a Blob');
  }
}

/** Not every caller is checked by a compiler, so values may be of any type. NaN is within no range. */
function isWithin(value: unknown, least: number, most: number): value is number {
  return typeof value === 'number' && value >= least && value <= most;
}

/** The error for what does not fit. */
export function bad(name: string, value: unknown, expected: string): BlueshiftError {
  const found = typeof value === 'string' || Array.isArray(value) ? JSON.stringify(value) : String(value);
  return new BlueshiftError('BadArgument', `${name} is ${found}, expected ${expected}`);
}
