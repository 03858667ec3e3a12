//! Tables of cases an operation: the device's bits against the CPU twin's. Tests run them natively and in browsers, and the
//! self-test uses them to name the operation at fault.

mod attention;
mod bench;
mod delta_net;
mod elementwise;
mod experts;
mod matrix;
mod sample;

pub use experts::run_expert_cases;
pub use matrix::run_matrix_cases;
pub use sample::run_random_settings;

use super::device::Gpu;
use crate::error::Result;
use crate::micro::rng::Rng;
use crate::quant::QuantType;

/// One case of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// The operation's stem.
    pub op: &'static str,
    /// What the case is.
    pub case: String,
    /// Whether every word the device wrote is the twin's.
    pub equal: bool,
    /// Index and bits, device and twin, of the first word that differs.
    pub first_difference: Option<String>,
}

impl CaseResult {
    fn compare(op: &'static str, case: String, found: &[u32], wanted: &[u32]) -> Self {
        let at = found.iter().zip(wanted).position(|(a, b)| a != b);
        let at = at.or((found.len() != wanted.len()).then(|| found.len().min(wanted.len())));
        let shown = |words: &[u32], at: usize| words.get(at).map_or("nothing".into(), |w| format!("{w:#010x}"));
        let first_difference =
            at.map(|at| format!("word {at}: {} on the device, {} on the cpu", shown(found, at), shown(wanted, at)));
        CaseResult { op, case, equal: first_difference.is_none(), first_difference }
    }
}

/// Runs every table on `gpu`.
///
/// # Errors
/// Whatever the device fails with; a difference is a result, not an error.
pub async fn run_case_tables(gpu: &Gpu) -> Result<Vec<CaseResult>> {
    let mut results = Vec::new();
    elementwise::run(gpu, &mut results).await?;
    run_matrix_cases(gpu, &QuantType::ALL, &mut results).await?;
    run_expert_cases(gpu, &QuantType::ALL, &mut results).await?;
    attention::run(gpu, &mut results).await?;
    delta_net::run(gpu, &mut results).await?;
    sample::run(gpu, &mut results).await?;
    Ok(results)
}

/// What inputs look like.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fill {
    /// Zeros.
    Zero,
    /// Uniform up to a magnitude.
    Uniform(f32),
    /// Magnitudes from the smallest that counts to large ones.
    Spread,
}

impl Fill {
    fn values(self, name: &str, n: usize) -> Vec<f32> {
        let mut rng = Rng::new(1, name);
        let mut value = || match self {
            Fill::Zero => 0.0,
            Fill::Uniform(magnitude) => rng.uniform(-magnitude, magnitude),
            Fill::Spread => {
                let exponent = rng.uniform(-40.0, 16.0).round() as i32;
                rng.uniform(-1.0, 1.0) * 2f32.powi(exponent)
            }
        };
        (0..n).map(|_| value()).collect()
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_seen() {
        let compare = |found: &[u32], wanted: &[u32]| CaseResult::compare("op", "case".into(), found, wanted);
        assert!(compare(&[1, 2], &[1, 2]).equal);
        let result = compare(&[1, 2], &[1, 3]);
        assert!(!result.equal);
        assert_eq!(result.first_difference.unwrap(), "word 1: 0x00000002 on the device, 0x00000003 on the cpu");
        assert_eq!(
            compare(&[1], &[1, 3]).first_difference.unwrap(),
            "word 1: nothing on the device, 0x00000003 on the cpu"
        );
    }
}
