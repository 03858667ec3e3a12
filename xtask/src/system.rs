//! Programs from outside the workspace that the commands need: node, pip, a browser, a software Vulkan adapter, a C++ compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::models;
use crate::run::{npm, root, run, succeeds};

const BROWSERS: [&str; 4] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/usr/bin/google-chrome-stable"];
const DRIVERS: [&str; 3] = ["/usr/bin/chromedriver", "/usr/lib/chromium/chromedriver", "/usr/local/bin/chromedriver"];
const ADAPTERS: [&str; 2] = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

/// Something a command needs.
pub(crate) struct Need {
    is_there: fn() -> bool,
    /// The Debian packages that bring it.
    packages: &'static [&'static str],
}

const NODE: Need = Need { is_there: || node_major().is_some_and(|major| major >= 20), packages: &["nodejs"] };
const NPM: Need = Need { is_there: || succeeds(npm(root()).arg("--version")), packages: &["npm"] };
const PIP: Need = Need { is_there: || models::python().is_some(), packages: &["python3", "python3-pip"] };
const CHROMIUM: Need = Need { is_there: || chromium().is_some(), packages: &["chromium"] };
const CHROMEDRIVER: Need = Need { is_there: || chromedriver().is_some(), packages: &["chromium-driver"] };
const GXX: Need = Need {
    is_there: || cfg!(not(target_os = "linux")) || succeeds(Command::new("g++").arg("--version")),
    packages: &["g++"],
};
const ADAPTER: Need = Need {
    is_there: || cfg!(not(target_os = "linux")) || software_adapter().is_some(),
    packages: &["mesa-vulkan-drivers", "libvulkan1"],
};

/// What the demo page is built with.
pub(crate) const FOR_DEMO: [Need; 3] = [NODE, NPM, PIP];
/// What the checks run with.
pub(crate) const FOR_TESTS: [Need; 7] = [NODE, NPM, PIP, CHROMIUM, CHROMEDRIVER, ADAPTER, GXX];

/// Installs what is missing with apt where that is possible, and says what to install where it is not.
pub(crate) fn install_missing(needs: &[Need]) -> Result<()> {
    let missing: Vec<_> = needs.iter().filter(|need| !(need.is_there)()).flat_map(|need| need.packages).collect();
    if missing.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    if !can_install() {
        let names = missing.into_iter().copied().collect::<Vec<_>>().join(", ");
        bail!(
            "missing or too old (Debian's names; Node must be 20 or newer): {names}. Install them with your system's package manager and run the command again (a Chromium and a chromedriver elsewhere can be named in CHROME and CHROMEDRIVER)"
        );
    }
    run(Command::new("apt-get").args(["update", "--quiet"]))?;
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "--yes", "--quiet", "--no-install-recommends"]);
    run(apt.args(missing))?;
    ensure!(
        (NODE.is_there)(),
        "the system's packages bring a Node that is older than 20; install a newer one and run the command again"
    );
    Ok(())
}

/// The first number of `node --version`, which is like `v20.1.0`.
fn node_major() -> Option<u32> {
    let out = Command::new("node").arg("--version").output().ok()?;
    String::from_utf8_lossy(&out.stdout).trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// A Chromium: the one named in `CHROME`, else a usual place.
pub(crate) fn chromium() -> Option<PathBuf> {
    named_or_usual("CHROME", &BROWSERS)
}

/// Chromium's driver: the one named in `CHROMEDRIVER`, else a usual place.
pub(crate) fn chromedriver() -> Option<PathBuf> {
    named_or_usual("CHROMEDRIVER", &DRIVERS)
}

fn named_or_usual(variable: &str, usual: &[&str]) -> Option<PathBuf> {
    let named = std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    named.or_else(|| usual.iter().map(PathBuf::from).find(|p| p.exists()))
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
