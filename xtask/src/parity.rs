//! `cargo xtask parity`: asks every backend of this machine the same and compares the bits.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::{cargo, npm_ci, program, root, run};
use crate::{system, web};

/// What is asked where nobody names prompts.
const PROMPTS: &str = "tests/data/parity-prompts.txt";

/// What to compare.
pub(crate) struct Options {
    /// A GGUF file.
    pub(crate) model: PathBuf,
    /// A file with a prompt a line.
    pub(crate) prompts: Option<PathBuf>,
    /// Tokens drawn after each prompt.
    pub(crate) tokens: usize,
    /// Chromium's adapter: `hw` or `sw`.
    pub(crate) adapter: String,
}

/// Who answers, and how it is asked.
struct Candidate {
    name: &'static str,
    command: Command,
}

/// Builds the programs and the package, asks every backend, prints a table. Fails where two differ.
pub(crate) fn parity(options: &Options) -> Result<()> {
    run(cargo().args(["build", "--release", "--package", "blueshift", "--package", "blueshift-native-cuda"]))?;
    web::build(web::Profile::Release)?;
    npm_ci(&root().join("tests/web"))?;
    let prompts = options.prompts.clone().unwrap_or_else(|| root().join(PROMPTS));
    let prompts = prompts.canonicalize().with_context(|| prompts.display().to_string())?;
    let ask = |name, backend: &str| {
        let mut command = Command::new(program("release", name));
        command.args(["parity", "--backend", backend, "--tokens", &options.tokens.to_string()]);
        command.arg("--prompts").arg(&prompts).arg(&options.model);
        command
    };
    let candidates = [
        Candidate { name: "cpu", command: ask("blueshift", "cpu") },
        Candidate { name: "wgpu", command: ask("blueshift", "wgpu") },
        Candidate { name: "cuda", command: ask("blueshift-cuda", "cuda") },
        Candidate { name: "Chromium", command: browser(options, &prompts)? },
    ];
    let mut reports = Vec::new();
    for Candidate { name, mut command } in candidates {
        eprintln!("asking {name}");
        let out = command.stderr(Stdio::piped()).output().with_context(|| format!("could not start {name}"))?;
        match serde_json::from_slice::<Value>(&out.stdout) {
            Ok(report) if out.status.success() => reports.push((name, report)),
            _ => {
                // A machine without the device is no failure; a device that fails is one.
                let reason = String::from_utf8_lossy(&out.stderr);
                match reason.lines().find(|line| ABSENT.iter().any(|absent| line.contains(absent))) {
                    Some(line) => eprintln!("{name} is not there: {line}"),
                    None => bail!("{name} failed: {reason}"),
                }
            }
        }
    }
    compare(&reports)
}

fn browser(options: &Options, prompts: &Path) -> Result<Command> {
    let model = options.model.canonicalize().with_context(|| options.model.display().to_string())?;
    let (Some(folder), Some(file)) = (model.parent(), model.file_name()) else {
        bail!("{} is no file", model.display());
    };
    let mut command = Command::new("node");
    command.current_dir(root()).arg("tests/web/parity.mjs").arg("--model").arg(file).arg("--prompts").arg(prompts);
    command.args(["--adapter", &options.adapter, "--tokens", &options.tokens.to_string()]);
    command.env("BLUESHIFT_MODELS", folder).env("BLUESHIFT_XTASK", std::env::current_exe()?);
    if let Some(chrome) = system::chromium() {
        command.env("CHROME", chrome);
    }
    Ok(command)
}

/// What an error says where there is no device of a kind.
const ABSENT: [&str; 2] = ["no GPU: ", "the browser offers no WebGPU adapter"];
/// What is compared of each answer.
const PARTS: [&str; 4] = ["logits", "greedy", "sampled", "filtered"];

/// Prints who gave what, and fails where somebody gave other bits than the first.
fn compare(reports: &[(&str, Value)]) -> Result<()> {
    let [(reference, first), _, ..] = reports else {
        bail!("{} backends answered, two are to be compared", reports.len())
    };
    let empty = Vec::new();
    let answers = |report: &'_ Value| report["answers"].as_array().cloned().unwrap_or_default();
    println!(
        "{:>9}  {:>6}  {:16}  {:>18}  {:>18}  {:>18}  adapter",
        "backend", "prompt", "logits", "greedy", "sampled", "filtered"
    );
    let mut different = 0;
    for (name, report) in reports {
        let (found, wanted) = (answers(report), answers(first));
        different += usize::from(found.len() != wanted.len() || found.is_empty());
        for (at, (answer, wanted)) in found.iter().zip(&wanted).enumerate() {
            let cells = PARTS.map(|part| {
                let equal = answer[part] == wanted[part];
                different += usize::from(!equal);
                let mark = if equal { "" } else { "!" };
                match &answer[part] {
                    Value::String(text) => format!("{text}{mark}"),
                    ids => {
                        let ids = ids.as_array().unwrap_or(&empty);
                        format!("{} ids {:08x}{mark}", ids.len(), checksum(ids))
                    }
                }
            });
            let [logits, greedy, sampled, filtered] = cells;
            let adapter = report["adapter"].as_str().unwrap_or_default();
            println!("{name:>9}  {at:>6}  {logits:16}  {greedy:>18}  {sampled:>18}  {filtered:>18}  {adapter}");
        }
    }
    if different > 0 {
        bail!("{different} answers differ from those of {reference} (marked by !)");
    }
    println!("{} backends, the same bits", reports.len());
    Ok(())
}

/// FNV-1a of ids, to be looked at; what decides is the ids themselves.
fn checksum(ids: &[Value]) -> u32 {
    let step = |hash: u32, id: u64| (hash ^ id as u32).wrapping_mul(0x0100_0193);
    ids.iter().filter_map(Value::as_u64).fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_other_id_is_a_difference() {
        let report = |id: u32| json!({"adapter": "a", "answers": [{"logits": "00", "greedy": [1, id], "sampled": [], "filtered": []}]});
        assert!(compare(&[("cpu", report(2)), ("wgpu", report(2))]).is_ok());
        assert!(compare(&[("cpu", report(2)), ("wgpu", report(3))]).is_err());
        assert!(compare(&[("cpu", report(2)), ("wgpu", json!({"answers": []}))]).is_err());
        assert!(compare(&[("cpu", report(2))]).is_err() && compare(&[]).is_err());
        let nothing = json!({"answers": []});
        assert!(compare(&[("cpu", nothing.clone()), ("wgpu", nothing)]).is_err());
    }
}
