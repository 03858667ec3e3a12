//! Every kernel variant is valid WGSL.

/// Parses and validates one shader; the one capability is `unpack2x16float`, which every device has.
fn validate(source: &str) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
    let flags = naga::valid::ValidationFlags::all();
    let mut validator = naga::valid::Validator::new(flags, naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32);
    validator.validate(&module).map(|_| ()).map_err(|e| e.emit_to_string(source))
}

#[test]
fn shaders_are_valid() {
    let failures: Vec<_> = blueshift::gpu::shader_sources()
        .iter()
        .filter_map(|(name, source)| validate(source).err().map(|e| format!("{name}: {e}")))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
