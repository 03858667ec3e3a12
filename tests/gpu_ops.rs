//! Every kernel variant is valid WGSL, and its bits on this machine's device are the CPU twin's.

mod common;

use blueshift::gpu::cases::{CaseResult, run_case_tables, run_expert_cases, run_matrix_cases, run_random_settings};
use blueshift::gpu::{Gpu, ShaderPatch, shader_sources};
use blueshift::quant::QuantType;

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

/// Draws with random settings, for each (vocabulary, rows): how many, and those that are not the twin's.
fn random_draws(gpu: &Gpu, table: &[(usize, usize)]) -> (usize, Vec<CaseResult>) {
    let mut results = Vec::new();
    pollster::block_on(run_random_settings(gpu, table, &mut results)).expect("the device runs every case");
    let n = results.len();
    results.retain(|case| !case.equal);
    (n, results)
}

/// Thousands of draws, on vocabularies from one workgroup's share to the largest in use.
#[test]
fn draws_are_the_twins() {
    let Some(gpu) = device() else { return };
    let small = [(2, 200), (128, 4000), (1000, 3000), (4099, 2800)];
    let large = [(49152, 66), (128_256, 44), (151_936, 11), (262_144, 33)];
    let (n, failures) = random_draws(&gpu, &[&small[..], &large].concat());
    assert_eq!(n, 13_541);
    assert!(failures.is_empty(), "{} of {n} cases: {:#?}", failures.len(), &failures[..failures.len().min(5)]);
}

/// The table is no use unless it sees a fault in each part of the filters.
#[test]
fn faults_in_the_filters_are_found() {
    if device().is_none() {
        return;
    }
    let faults = [
        ("sample_adjust", "value > 0.0", "value < 0.0"),
        ("sample_adjust", "if is_out(logit) ||", "if"),
        ("sample_adjust", "if is_banned(how, slot, first + j) {", "if false {"),
        ("sample", "&& !is_banned(how, slot, first + j)", ""),
        ("sample_filter", "select(0u, fewer + 1u,", "select(0u, fewer,"),
        ("sample_filter", "flush_small(top + all_rules[slot].min_p_offset)", "top"),
        ("sample_filter", "Beginning(least - 1u, 0u)", "Beginning(least, 0u)"),
        (
            "sample_filter",
            "!less64(weighted, times64(total, quotient + bit))",
            "less64(times64(total, quotient + bit), total)",
        ),
        ("sample_filter", "multiply_wide(m, before.take)", "vec2<u32>(m, 0u)"),
        ("sample_filter", "border.rank == before.key ||", ""),
        ("sample_filter", "less64(multiply_wide(take, each), border.there)", "false"),
        ("sample_filter", "all_rules[slot].top_k <= POOL", "all_rules[slot].top_k <= 4u * POOL"),
        ("sample_filter", "&& any(border.missing != border.there)", "&& false"),
        ("sample_filter", "(cut.typical && !stays(kept, key, id))", "false"),
        ("sample_filter", "end = i * 4u + j + 1u", "end = i * 4u + j"),
        ("sample_filter", "upper >> (32u - HALF_BITS)", "0u"),
        ("sample_kept", "id < kept.end", "id <= kept.end"),
        ("sample_kept", "distance < kept.distance ||", "distance <= kept.distance ||"),
        ("sample_kept", "id < kept.distance_end", "false"),
    ];
    all_are_seen(&faults, |gpu, _| {
        // Most are seen early.
        let tables = [&[(128, 100)][..], &[(4099, 60)], &[(128, 400), (4099, 200)]];
        tables.iter().any(|table| !random_draws(gpu, table).1.is_empty())
    });
}

/// Fails where a fault (stem, text, what stands there instead) is not seen on a device with it.
fn all_are_seen(faults: &[(&'static str, &'static str, &'static str)], sees: impl Fn(&Gpu, &str) -> bool) {
    let is_unseen = |&&(stem, from, to): &&(&'static str, &'static str, &'static str)| {
        let gpu = pollster::block_on(Gpu::open_patched(ShaderPatch { stem, from, to })).expect("a device");
        !sees(&gpu, stem)
    };
    assert_eq!(faults.iter().filter(is_unseen).collect::<Vec<_>>(), [] as [&(&str, &str, &str); 0]);
}

/// What random logits and weights may hide: ties, tiny products, parts that end inside an expert.
#[test]
fn faults_in_the_experts_are_found() {
    if device().is_none() {
        return;
    }
    let faults = [
        ("route", "other == key && j < i", "other == key && j > i"),
        ("route", "order_key(number_of(logit))", "order_key(bitcast<f32>(logit))"),
        ("route", "finite = finite && other != NO_KEY", "finite = true"),
        ("route", "flush_small(shares[lane] * exact_recip(sum))", "shares[lane] * exact_recip(sum)"),
        ("expert_matmul", "+ j - params.first_row", "+ j"),
        ("expert_matmul", "j < params.n_rows", "true"),
        ("expert_matmul", "pick * params.x_vectors / params.n_used", "pick"),
        ("combine_experts", "params.n_used + p;", "params.n_used + (params.n_used - 1u - p);"),
        ("combine_experts", "guard(flush_small(", "guard(("),
        ("gated_activation", "2u * params.width", "params.width"),
    ];
    all_are_seen(&faults, |gpu, stem| {
        let mut results = Vec::new();
        pollster::block_on(run_expert_cases(gpu, &[QuantType::Q4_0], &mut results))
            .expect("the device runs every case");
        results.iter().any(|case| !case.equal && case.op == stem)
    });
}

/// Lanes that fold several rows, where the matrix or its part ends within them.
#[test]
fn faults_in_the_products_are_found() {
    if device().is_none() {
        return;
    }
    let faults = [
        ("matmul", "block_of(min(row + j, params.rows - 1u)", "block_of(row"),
        ("matmul", "weights4(min(row + j, params.rows - 1u)", "weights4(row"),
        ("matmul", "if AHEAD > 1u", "if false"),
        ("matmul", "lane / params.segments * ROWS", "lane / params.segments"),
        ("matmul", "first_row + j < params.rows && row_runs", "row_runs"),
        ("matmul", "select(0.0, acc[j * TILE + r], s == segment)", "acc[j * TILE + r]"),
    ];
    all_are_seen(&faults, |gpu, stem| {
        let mut results = Vec::new();
        pollster::block_on(run_matrix_cases(gpu, &[QuantType::Q4_0, QuantType::F16], &mut results))
            .expect("the device runs every case");
        results.iter().any(|case| !case.equal && case.op == stem)
    });
}
