/** The one error class of the package. */

/** Codes of errors that arise outside the engine. The engine's own codes are its variants' names, such as `NotGguf`. */
export type ClientErrorCode = 'Disposed' | 'Cancelled' | 'WorkerCrashed' | 'BadArgument';

/** An error of the engine, or of the way to it. Aborts are not among them: they reject with the signal's reason. */
export class BlueshiftError extends Error {
  override readonly name = 'BlueshiftError';
  /** What went wrong, for programs. */
  readonly code: ClientErrorCode | (string & {});

  constructor(code: ClientErrorCode | (string & {}), message: string) {
    super(message);
    this.code = code;
  }
}
