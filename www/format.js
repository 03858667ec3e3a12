// Numbers as text.

export function megabytes(bytes) {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}

export function milliseconds(ms) {
  return ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export function speed(tokens, ms) {
  const rate = (tokens * 1000) / Math.max(ms, 0.001);
  return `${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`;
}
