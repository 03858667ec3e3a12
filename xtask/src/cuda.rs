//! The CUDA kernels: NVRTC, which compiles them with no GPU at hand, and tests that are carried to a machine with one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::models;
use crate::run::{cargo, program, root, run, target_dir};

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

/// The script that runs carried tests.
const SCRIPT: &str = "native-cuda/gpu-tests.sh";

/// Fills `folder` with what a machine with an NVIDIA GPU needs to run the tests, without Rust and without a network: the script, the test programs,
/// the command lines.
pub(crate) fn pack_tests(folder: &Path) -> Result<()> {
    let tests = test_programs()?;
    run(cargo().args([
        "build",
        "--release",
        "--package",
        "blueshift",
        "--package",
        "blueshift-native-cuda",
        "--bins",
    ]))?;
    std::fs::create_dir_all(folder.join("tests")).with_context(|| folder.display().to_string())?;
    let copy = |from: &Path, to: PathBuf| -> Result<()> {
        std::fs::copy(from, &to).with_context(|| to.display().to_string())?;
        // Where there is no `strip` the files are larger.
        let _ = Command::new("strip").arg(&to).status();
        Ok(())
    };
    for (name, program) in &tests {
        copy(program, folder.join("tests").join(name))?;
    }
    for name in ["blueshift", "blueshift-cuda"] {
        copy(&program("release", name), folder.join(name))?;
    }
    let script = folder.join("gpu-tests.sh");
    std::fs::copy(root().join(SCRIPT), &script).with_context(|| script.display().to_string())?;
    println!("{} test programs in {}: run `sh gpu-tests.sh` there", tests.len(), folder.display());
    Ok(())
}

/// The built tests of the CUDA crate that a GPU runs, by name.
fn test_programs() -> Result<Vec<(String, PathBuf)>> {
    let manifest = std::fs::read_to_string(root().join("native-cuda/Cargo.toml"))?;
    let named = manifest.lines().filter_map(|line| line.strip_prefix("path = \"../tests/")?.strip_suffix(".rs\""));
    let mut build = cargo();
    build.args(["test", "--package", "blueshift-native-cuda", "--no-run", "--message-format=json", "--test", "gpu"]);
    named.for_each(|name| {
        build.args(["--test", name]);
    });
    let built = build.stderr(Stdio::inherit()).output().context("could not start cargo")?;
    if !built.status.success() {
        bail!("the tests do not build");
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = |message: Value| {
        // Programs that the tests may start are built, too.
        message["profile"]["test"].as_bool().filter(|is_test| *is_test)?;
        let name = message["target"]["name"].as_str()?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    };
    let programs: Vec<_> = messages.filter_map(program).collect();
    ensure!(!programs.is_empty(), "cargo names no test programs");
    Ok(programs)
}
