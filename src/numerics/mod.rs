//! The exactness contract in Rust: see docs/numerics.md.

pub mod round;
pub mod segments;
