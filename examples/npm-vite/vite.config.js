export default {
  base: './',
  // The package finds its worker by its own address, which the dependency optimiser would change.
  optimizeDeps: { exclude: ['blueshift-lm'] },
  worker: { format: 'es' },
  // The package lies outside this folder here; from npm this is not needed.
  server: { fs: { allow: ['../..'] } },
};
