//! Paths of the workspace, and child processes that fail loudly.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The workspace's root folder.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The folder cargo builds into.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A program that cargo built, in the folder of a profile.
pub(crate) fn program(profile: &str, name: &str) -> PathBuf {
    target_dir().join(profile).join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// The `cargo` that runs this program, in the workspace's root.
pub(crate) fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root());
    command
}

/// `npm` with arguments, in `dir`.
pub(crate) fn npm(dir: &Path) -> Command {
    let mut command = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
    command.current_dir(dir);
    command
}

/// Runs a command with its output shown; an exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    let status = command.status().with_context(|| format!("could not start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Whether a command starts and exits with status 0; its output is hidden.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Installs a package folder's locked dependencies, unless they are already what the lock file says.
pub(crate) fn npm_ci(dir: &Path) -> Result<()> {
    let modified = |path: &str| std::fs::metadata(dir.join(path)).and_then(|m| m.modified()).ok();
    let installed = modified("node_modules/.package-lock.json");
    if installed.is_some() && installed >= modified("package-lock.json") {
        return Ok(());
    }
    run(npm(dir).args(["ci", "--no-audit", "--no-fund"]))
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
