//! A file's model: configuration, weights, plan.

pub mod weights;
