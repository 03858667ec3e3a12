// The state as kernels see it that do not advance it.
@group(0) @binding(1) var<uniform> state: State;
