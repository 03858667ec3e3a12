//! The cpu backend: the specification of every operation, and the fallback where there is no GPU. One file an operation.

pub mod attention;
pub mod backend;
mod buffers;
pub mod combine_experts;
pub mod delta_prepare;
pub mod delta_rule;
mod dot;
pub mod expert_matmul;
pub mod gated_activation;
pub mod gated_add;
pub mod gated_norm;
pub mod kv;
mod kv_q8_0;
mod machine;
pub mod matmul;
pub mod matrix;
pub mod pool;
pub mod quantise;
pub mod recurrent;
pub mod rms_norm;
pub mod rope_append;
pub mod route;
mod timing;
mod weights;
