//! Kernels as shared libraries for the processor, compiled by g++ and kept in the build's folder.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;

use crate::cache::Key;
use crate::variants::Variant;

/// `emulated_launch` of `emulator/module.cpp`: x, y, z, the bytes of the parameters, the pointers.
pub(super) type Launch = unsafe extern "C" fn(u32, u32, u32, *const c_void, *const *mut c_void);

const FOLDER: &str = concat!(env!("OUT_DIR"), "/emulated");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const FLAGS: [&str; 9] = [
    "-std=c++17",
    "-O2",
    // No product is fused with an addition.
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-shared",
    "-fPIC",
    "-Wall",
    // `#pragma unroll` is for the GPU.
    "-Wno-unknown-pragmas",
    "-DEMULATED",
];
/// What every module is made of beside its kernel.
const PARTS: [&str; 3] = [
    include_str!("../../emulator/module.cpp"),
    include_str!("../../emulator/cuda.hpp"),
    include_str!("../../emulator/fibers.hpp"),
];

/// The launch functions of all kernels by the variants' names; why a kernel has none. They are loaded once for the process.
pub(super) fn all() -> &'static HashMap<String, Result<Launch, String>> {
    static ALL: OnceLock<HashMap<String, Result<Launch, String>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let launches = Variant::map_all(|variant| compiled(variant).and_then(|path| load(&path)));
        launches.into_iter().map(|(variant, launch)| (variant.name, launch)).collect()
    })
}

/// The library of a variant, compiled where it is not there yet.
fn compiled(variant: &Variant) -> Result<PathBuf, String> {
    let texts = variant.texts();
    let parts = FLAGS.into_iter().chain(PARTS).chain(variant.macros.iter().map(String::as_str));
    let key = Key::of(parts.chain(texts.iter().flat_map(|(name, text)| [*name, *text])));
    let path = Path::new(FOLDER).join(format!("{key}.so"));
    if path.exists() {
        return Ok(path);
    }
    let io = |e: std::io::Error| format!("{}: {e}", path.display());
    std::fs::create_dir_all(FOLDER).map_err(io)?;
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let mut compiler = Command::new("g++");
    compiler.args(FLAGS).arg(format!("-DKERNEL=\"{}\"", variant.file()));
    compiler.args(variant.macros.iter().map(|m| format!("-D{m}")));
    compiler.arg("-I").arg(Path::new(ROOT).join("kernels")).arg(Path::new(ROOT).join("emulator/module.cpp"));
    let output = compiler.arg("-o").arg(&part).output().map_err(|e| format!("g++: {e}"))?;
    let messages = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !messages.is_empty() {
        return Err(format!("g++ on {}: {messages}", variant.name));
    }
    std::fs::rename(&part, &path).map_err(io)?;
    Ok(path)
}

fn load(path: &Path) -> Result<Launch, String> {
    // SAFETY: the library has no initialisers but those of the C++ runtime.
    let library = unsafe { Library::new(path) }.map_err(|e| e.to_string())?;
    // Kernels are run until the process ends.
    let library = Box::leak(Box::new(library));
    // SAFETY: that is the function's type.
    unsafe { library.get::<Launch>(c"emulated_launch".to_bytes_with_nul()) }.map(|f| *f).map_err(|e| e.to_string())
}
