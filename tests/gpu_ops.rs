//! Every kernel variant is valid WGSL, and its bits on this machine's device are the CPU twin's.

mod common;

use blueshift::gpu::cases::{run_case_tables, run_random_settings};
use blueshift::gpu::{Gpu, shader_sources};

/// The device; where there is none the test is ignored, but fails under CI.
fn device() -> Option<Gpu> {
    match pollster::block_on(Gpu::open(None)) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            common::ignored(&error.to_string());
            None
        }
    }
}

/// Parses and validates one shader; the one capability is `unpack2x16float`, which every device has.
fn validate(source: &str) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
    let flags = naga::valid::ValidationFlags::all();
    let mut validator = naga::valid::Validator::new(flags, naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32);
    validator.validate(&module).map(|_| ()).map_err(|e| e.emit_to_string(source))
}

#[test]
fn shaders_are_valid() {
    let failures: Vec<_> = shader_sources()
        .iter()
        .filter_map(|(name, source)| validate(source).err().map(|e| format!("{name}: {e}")))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn devices_give_the_twins_bits() {
    let Some(gpu) = device() else { return };
    let results = pollster::block_on(run_case_tables(&gpu)).expect("the device runs every case");
    let failures: Vec<_> = results.iter().filter(|case| !case.equal).collect();
    assert!(failures.is_empty(), "{} of {} cases: {failures:#?}", failures.len(), results.len());
}

/// Thousands of draws with random settings, on vocabularies from one workgroup's share to the largest in use.
#[test]
fn draws_are_the_twins() {
    let Some(gpu) = device() else { return };
    let table = [(2, 100), (128, 1500), (1000, 800), (4099, 400), (49152, 48), (151_936, 24), (262_144, 16)];
    let mut results = Vec::new();
    pollster::block_on(run_random_settings(&gpu, &table, &mut results)).expect("the device runs every case");
    assert_eq!(results.len(), 2888);
    let failures: Vec<_> = results.iter().filter(|case| !case.equal).collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases: {:#?}",
        failures.len(),
        results.len(),
        &failures[..failures.len().min(5)]
    );
}
