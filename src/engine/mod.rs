//! Sequences on a backend: prompts in, token streams out.

pub mod backend;
