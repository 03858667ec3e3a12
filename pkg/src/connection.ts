/** The page's end of a worker: calls, their replies, and what happens to them when the worker ends. */

import { BlueshiftError } from './errors.js';
import type { CallName, Calls, Event, Reply } from './protocol.js';

interface Pending {
  readonly onEvent: (event: Event) => void;
  readonly resolve: (value: never) => void;
  readonly reject: (reason: unknown) => void;
}

export class Connection {
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  #lastId = 0;
  /** Why the connection ended, once it has. */
  #closed: { readonly reason: unknown } | undefined;

  constructor() {
    this.#worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'blueshift' });
    this.#worker.onmessage = (message: MessageEvent<Reply>) => this.#receive(message.data);
    this.#worker.onmessageerror = () => this.#crash('a message could not be read');
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#crash(event.message || 'its script could not be loaded');
    };
  }

  /** Sends a request. Aborting rejects at once with the signal's reason and cancels the request in the worker. */
  call<Name extends CallName>(
    call: Name,
    args: Calls[Name]['in'],
    onEvent: (event: Event) => void = () => {},
    signal?: AbortSignal,
  ): Promise<Calls[Name]['out']> {
    if (this.#closed) return Promise.reject(this.#closed.reason);
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = ++this.#lastId;
    return new Promise<Calls[Name]['out']>((resolve, reject) => {
      const abort = () => {
        this.#worker.postMessage({ id, call: 'cancel' });
        this.#settle(id)?.reject(signal?.reason);
      };
      signal?.addEventListener('abort', abort, { once: true });
      const finish = () => signal?.removeEventListener('abort', abort);
      this.#pending.set(id, {
        onEvent,
        resolve: (value) => (finish(), resolve(value)),
        reject: (reason) => (finish(), reject(reason)),
      });
      try {
        this.#worker.postMessage({ id, call, args });
      } catch (error) {
        const why = error instanceof Error ? error.message : String(error);
        this.#settle(id)?.reject(new BlueshiftError('BadArgument', `what was given cannot be sent to the worker: ${why}`));
      }
    });
  }

  /** Ends the worker, which frees all it holds. Pending and later calls reject with `reason`. */
  close(reason: unknown): void {
    if (this.#closed) return;
    this.#closed = { reason };
    this.#worker.terminate();
    for (const id of [...this.#pending.keys()]) this.#settle(id)?.reject(reason);
  }

  #receive(reply: Reply): void {
    if ('crash' in reply) return this.#crash(reply.crash);
    // Replies to a cancelled request find nobody waiting.
    if ('event' in reply) this.#pending.get(reply.id)?.onEvent(reply.event);
    else if ('done' in reply) this.#settle(reply.id)?.resolve(reply.done as never);
    else this.#settle(reply.id)?.reject(new BlueshiftError(reply.error.code, reply.error.message));
  }

  #settle(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    return pending;
  }

  #crash(message: string): void {
    this.close(new BlueshiftError('WorkerCrashed', `the engine's worker stopped: ${message}`));
  }
}
