//! What the browser tests ask of the library beside models.

use wasm_bindgen::prelude::*;

use super::error::to_js;
use super::json;
use crate::gpu::cases::run_case_tables as run_on;
use crate::gpu::{Gpu, shader_sources as sources};

/// Every shader as the browser gets it: `[{name, source}]` as JSON.
#[wasm_bindgen]
pub fn shader_sources() -> String {
    let shaders: Vec<_> = sources().into_iter().map(|(name, source)| json::Shader { name, source }).collect();
    json::write(&shaders)
}

/// Runs every operation's cases on the browser's GPU: `{cases, failures: [text]}` as JSON.
///
/// # Errors
/// Where there is no adapter or the device fails.
#[wasm_bindgen]
pub async fn run_case_tables() -> Result<String, JsValue> {
    let gpu = Gpu::open(None).await.map_err(to_js)?;
    let results = run_on(&gpu).await.map_err(to_js)?;
    let failures = results.iter().filter(|r| !r.equal);
    let report = json::CaseReport {
        cases: results.len(),
        failures: failures
            .map(|r| format!("{} {}: {}", r.op, r.case, r.first_difference.as_deref().unwrap_or("")))
            .collect(),
    };
    Ok(json::write(&report))
}
