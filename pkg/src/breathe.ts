const channel = new MessageChannel();

/** Lets messages that wait, such as a cancellation, be received. */
export function breathe(): Promise<void> {
  return new Promise((resolve) => {
    channel.port1.onmessage = () => resolve();
    channel.port2.postMessage(null);
  });
}
