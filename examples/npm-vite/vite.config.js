export default {
  base: './',
  // The package finds its worker by its own address, which the dependency optimiser would change.
  optimizeDeps: { exclude: ['blueshift-lm'] },
  worker: { format: 'es' },
};
