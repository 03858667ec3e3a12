//! A file's model: configuration, weights, plan.

pub mod arch;
pub mod config;
pub mod load;
pub mod weights;

use crate::error::Result;
use crate::gguf::GgufFile;
use crate::plan::Plan;
use config::Config;
use weights::Weights;

/// Everything about a model but the values of its weights.
#[derive(Debug, Clone)]
pub struct Model {
    /// Hyper-parameters.
    pub config: Config,
    /// The weights the plan refers to.
    pub weights: Weights,
    /// The step.
    pub plan: Plan,
}

impl Model {
    /// Reads the configuration of an opened file and builds its plan.
    pub async fn open(file: &GgufFile) -> Result<Self> {
        let header = &file.header;
        arch::check_supported(header.metadata.str("general.architecture")?)?;
        let config = Config::from_header(header)?;
        let rope_divisors = match header.tensor("rope_freqs.weight") {
            Some(info) => Some(rope_divisors(file, info, &config).await?),
            None => None,
        };
        let context = arch::Context { header, config: &config, rope_divisors: rope_divisors.as_deref() };
        let (weights, plan) = arch::build(context)?;
        Ok(Model { config, weights, plan })
    }
}

/// `rope_freqs.weight`: a divisor for each rotated pair (Llama 3's long-context scaling).
async fn rope_divisors(file: &GgufFile, info: &crate::gguf::TensorInfo, config: &Config) -> Result<Vec<f32>> {
    let bad =
        |found: String, expected: String| crate::error::Error::BadTensor { tensor: info.name.clone(), found, expected };
    let n_pairs = config.n_rot / 2;
    if info.row_len() != n_pairs || info.rows() != 1 {
        return Err(bad(format!("shape [{}, {}]", info.rows(), info.row_len()), format!("[1, {n_pairs}]")));
    }
    let divisors = load::read_vector(file, info).await?;
    match divisors.iter().find(|d| **d <= 0.0) {
        Some(d) => Err(bad(format!("the divisor {d}"), "positive numbers".into())),
        None => Ok(divisors),
    }
}
