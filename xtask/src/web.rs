//! Builds the npm package: wasm, its JavaScript glue, then the TypeScript around it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use flate2::{Compression, write::GzEncoder};
use wasm_bindgen_cli_support::Bindgen;

use crate::run::{cargo, npm, npm_ci, root, run, target_dir};

/// The target of the wasm builds.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";
/// What the package has beside the plain library.
pub(crate) const FEATURES: &str = "grammar";
/// wasm-bindgen's version; the runner of its tests must have the very same.
const BINDGEN: &str = "0.2.130";

const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// How the wasm is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Names and assertions kept.
    Dev,
    /// As published.
    Release,
}

/// The folder the finished package's files go to.
pub(crate) fn dist() -> PathBuf {
    root().join("pkg/dist")
}

/// Compiles the library, binds it and compiles the package around it; prints the sizes.
pub(crate) fn build(profile: Profile) -> Result<()> {
    install_target()?;
    compile(profile)?;
    std::fs::remove_dir_all(dist()).or_else(ignore_missing)?;
    bind(profile)?;
    copy_licences()?;
    npm_ci(&root().join("pkg"))?;
    run(npm(&root().join("pkg")).args(["run", "--silent", "compile"]))?;
    print_sizes(&dist())
}

/// The licences lie in the repository's root; the package carries copies.
fn copy_licences() -> Result<()> {
    for name in LICENCES {
        std::fs::copy(root().join(name), root().join("pkg").join(name)).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Adds the wasm target to the toolchain in use, where rustup manages it.
pub(crate) fn install_target() -> Result<()> {
    let has_target = Command::new("rustup").current_dir(root()).args(["target", "list", "--installed"]).output();
    match has_target {
        Ok(out) if String::from_utf8_lossy(&out.stdout).lines().any(|l| l == TARGET) => Ok(()),
        Ok(_) => run(Command::new("rustup").current_dir(root()).args(["target", "add", TARGET])),
        // Without rustup the target is a matter of the system's packages; cargo says what is missing.
        Err(_) => Ok(()),
    }
}

/// Flags of the wasm build. They name the target, so that native builds keep their fingerprints.
pub(crate) fn wasm_env(command: &mut Command) -> &mut Command {
    command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", "-C target-feature=+simd128")
}

/// wasm-bindgen's test runner, built on first use into the target folder.
pub(crate) fn test_runner() -> Result<PathBuf> {
    let tools = target_dir().join("tools");
    let runner = tools.join("bin").join(format!("wasm-bindgen-test-runner{}", std::env::consts::EXE_SUFFIX));
    let version = Command::new(&runner).arg("--version").output();
    if !version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(BINDGEN)) {
        let mut install = cargo();
        install.args(["install", "wasm-bindgen-cli", "--version", &format!("={BINDGEN}"), "--force"]);
        install.args(["--bin", "wasm-bindgen-test-runner", "--root"]).arg(&tools);
        run(&mut install)?;
    }
    ensure!(runner.exists(), "{} is missing after its installation", runner.display());
    Ok(runner)
}

fn compile(profile: Profile) -> Result<()> {
    let mut command = cargo();
    command.args([
        "build",
        "--package",
        "blueshift",
        "--lib",
        "--no-default-features",
        "--features",
        FEATURES,
        "--target",
        TARGET,
    ]);
    if profile == Profile::Release {
        command.args(["--profile", "web"]);
    }
    run(wasm_env(&mut command))
}

fn bind(profile: Profile) -> Result<()> {
    let folder = if profile == Profile::Release { "web" } else { "debug" };
    let wasm = target_dir().join(TARGET).join(folder).join("blueshift.wasm");
    let release = profile == Profile::Release;
    Bindgen::new()
        .input_path(&wasm)
        .out_name("blueshift")
        .omit_default_module_path(false)
        .web(true)
        .and_then(|b| {
            b.typescript(true)
                .remove_name_section(release)
                .remove_producers_section(release)
                .generate(dist().join("wasm"))
        })
        .map_err(|e| anyhow!("wasm-bindgen: {e:#}"))
        .with_context(|| format!("binding {}", wasm.display()))
}

fn print_sizes(dist: &Path) -> Result<()> {
    let mut total = 0;
    println!("{:>10} {:>10}  file", "bytes", "gzipped");
    for path in shipped(dist)? {
        let bytes = std::fs::read(&path)?;
        let gzipped = gzipped_len(&bytes)?;
        total += gzipped;
        println!("{:>10} {gzipped:>10}  {}", bytes.len(), path.strip_prefix(root()).unwrap_or(&path).display());
    }
    println!("{:>10} {total:>10}  JavaScript and wasm together", "");
    Ok(())
}

/// The files a browser downloads: `*.js` and `*.wasm`, sorted.
fn shipped(dist: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in [dist.to_path_buf(), dist.join("wasm")] {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "js" || e == "wasm") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn gzipped_len(bytes: &[u8]) -> Result<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.len())
}

fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
