//! Every check in order: what a change must pass.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::models::{self, Which};
use crate::run::{cargo, npm_ci, program, root, run};
use crate::{cuda, system, web};

/// A check's name and what it does.
type Step = (&'static str, fn() -> Result<()>);

const STEPS: [Step; 11] = [
    ("programs from outside", || system::install_missing(&system::FOR_TESTS)),
    ("models", fetch_models),
    ("format", format),
    ("lints, native", lint_native),
    ("lints, wasm", lint_wasm),
    ("documentation", document),
    ("tests, native", test_native),
    ("tests, wasm", test_wasm),
    ("command line", build_command_line),
    ("web build", || web::build(web::Profile::Release)),
    ("tests, browser", test_browser),
];

/// Runs the steps, stops at the first that fails, and sums up.
pub(crate) fn all() -> Result<()> {
    let mut done = Vec::new();
    let mut outcome = Ok(());
    for (name, step) in STEPS {
        println!("\n=== {name}");
        let start = Instant::now();
        outcome = step().with_context(|| format!("{name} failed"));
        done.push((name, start.elapsed(), outcome.is_ok()));
        if outcome.is_err() {
            break;
        }
    }
    sum_up(&done);
    outcome
}

fn sum_up(done: &[(&str, Duration, bool)]) {
    println!("\n=== summary");
    for (name, time, passed) in done {
        println!("{name:<24}{:>8.1} s  {}", time.as_secs_f64(), if *passed { "passed" } else { "FAILED" });
    }
    for (name, _) in &STEPS[done.len()..] {
        println!("{name:<24}{:>10}  not run", "-");
    }
}

fn fetch_models() -> Result<()> {
    models::fetch(Which::All, &models::folder(None)?)
}

fn format() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))
}

fn lint_native() -> Result<()> {
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn lint_wasm() -> Result<()> {
    web::install_target()?;
    let mut clippy = cargo();
    clippy.args(["clippy", "--package", "blueshift", "--lib", "--test", "wasm", "--no-default-features"]);
    clippy.args(["--features", web::FEATURES]);
    clippy.args(["--target", web::TARGET, "--", "-D", "warnings"]);
    run(web::wasm_env(&mut clippy))
}

fn document() -> Result<()> {
    run(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn test_native() -> Result<()> {
    let mut test = cargo();
    // Cargo's exit status is the verdict; `--no-fail-fast` shows every failing test binary at once.
    run(with_test_environment(test.args(["test", "--workspace", "--no-fail-fast"]))?)
}

/// The library's tests in a headless Chromium, with wasm-bindgen's own runner.
fn test_wasm() -> Result<()> {
    let mut test = cargo();
    test.args(["test", "--package", "blueshift", "--no-default-features", "--features", web::FEATURES]);
    test.args(["--target", web::TARGET, "--test", "wasm"]);
    test.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER", web::test_runner()?);
    test.env("CHROMEDRIVER", system::chromedriver().context("chromedriver is missing")?);
    // Seconds. The software adapter compiles shaders slowly.
    test.env("WASM_BINDGEN_TEST_TIMEOUT", "600").env("WASM_BINDGEN_TEST_DRIVER_TIMEOUT", "60");
    run(web::wasm_env(&mut test))
}

fn build_command_line() -> Result<()> {
    run(cargo().args(["build", "--package", "blueshift", "--bin", "blueshift"]))
}

fn test_browser() -> Result<()> {
    npm_ci(&root().join("tests/web"))?;
    let mut node = Command::new("node");
    node.current_dir(root()).arg("tests/web/run.mjs");
    node.env("BLUESHIFT_BIN", program("debug", "blueshift"));
    node.env("BLUESHIFT_XTASK", std::env::current_exe()?);
    if let Some(chromium) = system::chromium() {
        node.env("CHROME", chromium);
    }
    run(with_test_environment(&mut node)?)
}

/// Where the models and the compiler of CUDA kernels are, and that a missing adapter is a failure. On Linux the software adapter is the one tested.
fn with_test_environment(command: &mut Command) -> Result<&mut Command> {
    command.env("CI", "1").env("BLUESHIFT_MODELS", models::folder(None)?);
    if let Some(driver) = system::software_adapter() {
        command.env("VK_DRIVER_FILES", driver);
    }
    if cuda::HAS_NVRTC {
        command.env("BLUESHIFT_NVRTC", cuda::nvrtc()?);
    }
    Ok(command)
}
