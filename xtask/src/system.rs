//! Programs from outside the workspace that the tests need: a browser and a software Vulkan adapter.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{run, succeeds};

const BROWSERS: [&str; 4] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/usr/bin/google-chrome-stable"];
const ADAPTERS: [&str; 2] = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

/// Installs what is missing with apt where that is possible, and says what to install where it is not.
pub(crate) fn install_missing() -> Result<()> {
    let mut missing = Vec::new();
    if chromium().is_none() {
        missing.push("chromium");
    }
    if cfg!(target_os = "linux") && software_adapter().is_none() {
        missing.extend(["mesa-vulkan-drivers", "libvulkan1"]);
    }
    if !succeeds(Command::new("node").arg("--version")) {
        missing.extend(["nodejs", "npm"]);
    }
    if missing.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    if !can_install() {
        bail!(
            "missing: {}. Install them with your system's package manager and run the tests again (a Chromium elsewhere can be named in CHROME)",
            missing.join(", ")
        );
    }
    run(Command::new("apt-get").args(["update", "--quiet"]))?;
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "--yes", "--quiet", "--no-install-recommends"]);
    run(apt.args(missing))
}

/// A Chromium: the one named in `CHROME`, else a usual place.
pub(crate) fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("CHROME").map(PathBuf::from);
    named.or_else(|| BROWSERS.into_iter().map(PathBuf::from).find(|p| p.exists()))
}

/// The driver file of Mesa's software Vulkan adapter.
pub(crate) fn software_adapter() -> Option<PathBuf> {
    let files = ADAPTERS.into_iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
    files.map(|f| f.path()).find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("lvp_icd")))
}

fn can_install() -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.trim_ascii() == b"0");
    is_root && Path::new("/etc/debian_version").exists()
}
