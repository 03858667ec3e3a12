//! What whole-program tests share; each uses a part of it.
#![allow(dead_code)]

use std::io::Write;
use std::path::PathBuf;

/// Says on the terminal, past the test runner's capture, that something is not tested here; under CI that is a failure.
pub(crate) fn ignored(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    // A terminal that cannot be written to has nobody who would read it.
    let _ = writeln!(std::io::stderr(), "ignored: {reason}");
}

/// Folders that may hold models: `$BLUESHIFT_MODELS`, `models/`, the user's cache.
pub(crate) fn model_folders() -> Vec<PathBuf> {
    let set = std::env::var_os("BLUESHIFT_MODELS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models");
    set.into_iter().chain([here]).chain(cache.or(home).map(|cache| cache.join("blueshift/models"))).collect()
}

/// The path of a model file. Where it is absent the test is to return early: a line says that it is ignored; under CI
/// an absent model is a failure.
pub(crate) fn model(name: &str) -> Option<PathBuf> {
    let found = model_folders().into_iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        ignored(&format!("{name} is in none of {:?}", model_folders()));
    }
    found
}

/// Whether there is a GPU adapter. Where there is none the test is to return early: a line says that it is ignored; under CI
/// that is a failure.
pub(crate) fn has_adapter() -> bool {
    let found = !pollster::block_on(blueshift::gpu::list_adapters()).is_empty();
    if !found {
        ignored("no GPU adapter: install a Vulkan driver, for example Mesa's llvmpipe");
    }
    found
}
