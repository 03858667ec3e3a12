//! The exactness contract in Rust: see docs/numerics.md.
