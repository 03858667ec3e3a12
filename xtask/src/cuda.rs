//! What the tests of the CUDA kernels need: NVRTC, which compiles them with no GPU at hand.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::models;
use crate::run::{run, target_dir};

/// The Python package that brings NVRTC and its version.
const PACKAGE: &str = "nvidia-cuda-nvrtc==13.0.88";

/// Whether NVIDIA makes NVRTC for this system.
pub(crate) const HAS_NVRTC: bool = cfg!(any(target_os = "linux", windows));

/// The folder of NVRTC's library, which is installed on first use into the target folder.
pub(crate) fn nvrtc() -> Result<PathBuf> {
    let tools = target_dir().join("tools").join(PACKAGE.replace("==", "-"));
    let library = tools.join("nvidia").join("cu13").join(if cfg!(windows) { "bin/x86_64" } else { "lib" });
    if !library.exists() {
        let python = models::python().context("Python with pip is needed: `python3 -m pip --version` must work")?;
        // An installation that was interrupted leaves another folder.
        let part = tools.with_extension("part");
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target"]);
        run(pip.arg(&part).arg(PACKAGE))?;
        std::fs::rename(&part, &tools).with_context(|| tools.display().to_string())?;
    }
    ensure!(library.exists(), "{} is missing after its installation", library.display());
    Ok(library)
}
