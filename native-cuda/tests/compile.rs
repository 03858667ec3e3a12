//! Every CUDA kernel compiles without a warning, and has its WGSL twin's interface. NVRTC needs no GPU.

use std::collections::BTreeSet;
use std::path::PathBuf;

use blueshift::Error;
use blueshift::gpu::{Kernel, MatMulForm, shader_sources};
use blueshift_native_cuda::{CompileOptions, Compiled, Compiler, Nvrtc, OLDEST_CAPABILITY, Target, Variant, compile};

/// The architecture of an H200.
const MACHINE: u32 = 90;

/// Bytes of shared memory that a block may have on the GPUs that have least of it.
const MOST_SHARED: u32 = 99 << 10;

/// NVRTC; where there is none the test is ignored, but fails under CI.
fn nvrtc() -> Option<Nvrtc> {
    match Nvrtc::load(CompileOptions::default().nvrtc.as_deref(), u32::MAX) {
        Ok(nvrtc) => Some(nvrtc),
        Err(reason) => {
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            eprintln!("ignored: {reason}");
            None
        }
    }
}

/// Compiles every variant, several at a time.
fn compile_all(nvrtc: &Nvrtc, target: Target) -> Vec<(Variant, Result<Compiled, Error>)> {
    Variant::map_all(|variant| compile(nvrtc, variant, target))
}

/// What is not as it should be, for each kernel.
fn faults(
    compiled: &[(Variant, Result<Compiled, Error>)],
    check: impl Fn(&Variant, &Compiled) -> Option<String>,
) -> Vec<String> {
    let fault = |(variant, compiled): &(Variant, Result<Compiled, Error>)| match compiled {
        Err(error) => Some(error.to_string()),
        Ok(compiled) if !compiled.log.is_empty() => Some(format!("{}: {}", variant.name, compiled.log)),
        Ok(compiled) => check(variant, compiled).map(|fault| format!("{}: {fault}", variant.name)),
    };
    compiled.iter().filter_map(fault).collect()
}

/// The WGSL of what a kernel computes.
fn twin(name: &str) -> String {
    let twin = name.replace("_warps_", "_lanes_");
    let wide = ["_x16", "_x32", "_x64"].into_iter().find_map(|tile| twin.strip_suffix(tile));
    let twin = wide.map_or(twin.clone(), |wide| format!("{wide}_x8"));
    let found = shader_sources().into_iter().find(|(found, _)| *found == twin);
    found.unwrap_or_else(|| panic!("{name} has a twin")).1
}

#[test]
fn variants_are_what_plans_need() {
    let needed = Kernel::all_of(&[MatMulForm::Warps]).into_iter().map(Kernel::name);
    let variants = Variant::all().into_iter().map(|variant| variant.name);
    assert_eq!(variants.collect::<BTreeSet<_>>(), needed.collect::<BTreeSet<_>>());
}

#[test]
fn every_kernel_compiles_to_machine_code() {
    let Some(nvrtc) = nvrtc() else { return };
    let compiled = compile_all(&nvrtc, Target::Machine(MACHINE));
    let is_elf = |_: &Variant, compiled: &Compiled| (!compiled.image.starts_with(b"\x7fELF")).then(|| "no ELF".into());
    let faults = faults(&compiled, is_elf);
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), compiled.len(), faults.join("\n"));
}

/// The lengths in bytes of the parameters of PTX's `kernel_main`.
fn parameters(ptx: &str) -> Vec<usize> {
    let entry = ptx.split_once(".entry kernel_main").map_or("", |(_, rest)| rest);
    let length = |line: &str| {
        let declared = line.trim().strip_prefix(".param ")?;
        match declared.split_once('[') {
            Some((_, length)) => length.split(']').next()?.parse().ok(),
            None => declared.starts_with(".u64").then_some(8),
        }
    };
    entry.lines().take_while(|line| !line.starts_with(')')).filter_map(length).collect()
}

/// The same of a WGSL text, were it CUDA: the bytes of `Params`, a pointer for each other binding.
fn wanted_parameters(wgsl: &str) -> Vec<usize> {
    let module = naga::front::wgsl::parse_str(wgsl).unwrap();
    let bound = module.global_variables.iter().filter_map(|(_, global)| Some((global.binding?.binding, global.ty)));
    let mut bound: Vec<_> = bound.collect();
    bound.sort_by_key(|(number, _)| *number);
    let bytes = |number, ty| match (number, &module.types[ty].inner) {
        (0, naga::TypeInner::Struct { members, .. }) => 4 * members.len(),
        _ => 8,
    };
    bound.iter().map(|(number, ty)| bytes(*number, *ty)).collect()
}

/// Parameters are passed by their twin's interface, a block has as many threads as the launch bounds say, and no product is fused with an
/// addition, which would give other bits.
#[test]
fn kernels_are_what_their_twins_are() {
    let Some(nvrtc) = nvrtc() else { return };
    let compiled = compile_all(&nvrtc, Target::Ptx(OLDEST_CAPABILITY));
    let faults = faults(&compiled, |variant, compiled| {
        let ptx = String::from_utf8_lossy(&compiled.image);
        let (found, wanted) = (parameters(&ptx), wanted_parameters(&twin(&variant.name)));
        if found != wanted {
            return Some(format!("parameters of {found:?} bytes, expected {wanted:?}"));
        }
        if !ptx.contains(".maxntid") {
            return Some("no launch bounds".into());
        }
        // What a block of threads may be given on every GPU that has the instructions.
        let asked = ptx.lines().find_map(|line| line.split_once(".u32 shared_bytes = ")?.1.strip_suffix(';'));
        if let Some(bytes) = asked.filter(|bytes| bytes.parse().is_ok_and(|bytes: u32| bytes > MOST_SHARED)) {
            return Some(format!("{bytes} bytes of shared memory"));
        }
        let is_fused = |line: &&str| ["fma.", "mul.f32", "add.f32"].iter().any(|fusible| line.contains(fusible));
        ptx.lines().find(is_fused).map(|line| line.trim().into())
    });
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), compiled.len(), faults.join("\n"));
}

/// A second compiler finds what the first one kept; a damaged file is compiled again.
#[test]
fn compiled_kernels_are_kept() {
    if nvrtc().is_none() {
        return;
    }
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kept-kernels");
    let _ = std::fs::remove_dir_all(&cache);
    let options = CompileOptions { cache: Some(cache.clone()), ..Default::default() };
    let variants: Vec<_> = Variant::all().into_iter().filter(|v| ["empty", "stream_read"].contains(&v.stem)).collect();
    let images = || {
        let compiler = Compiler::new(&options, MACHINE, u32::MAX);
        variants.iter().map(|variant| compiler.image(variant).unwrap()).collect::<Vec<_>>()
    };
    let files = || std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let first = images();
    let kept = files();
    assert_eq!(kept.len(), variants.len());
    let times = || kept.iter().map(|path| std::fs::metadata(path).unwrap().modified().unwrap()).collect::<Vec<_>>();
    let written = times();
    assert_eq!(images(), first);
    assert_eq!(times(), written, "nothing was written again");
    for path in &kept {
        std::fs::write(path, b"damaged").unwrap();
    }
    assert_eq!(images(), first);
    assert!(kept.iter().all(|path| std::fs::metadata(path).unwrap().len() > 100), "they were written again");
}
