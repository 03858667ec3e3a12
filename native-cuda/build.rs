//! Embeds the kernels' texts; where `BLUESHIFT_BUILD_NVRTC` names NVRTC (its file or folder), also each kernel compiled to PTX, for
//! machines without NVRTC.

#[path = "src/nvrtc.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library exports more than the build needs")]
mod nvrtc;
#[path = "src/variants.rs"]
#[allow(unreachable_pub, reason = "the library exports it")]
mod variants;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use nvrtc::{Nvrtc, Source, Target};
use variants::{OLDEST_CAPABILITY, Variant};

fn main() -> Result<(), String> {
    // For tests of the root crate, which are this crate's, too.
    println!("cargo:rustc-cfg=on_cuda");
    println!("cargo:rerun-if-changed=kernels");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/nvrtc.rs");
    println!("cargo:rerun-if-changed=src/variants.rs");
    println!("cargo:rerun-if-env-changed=BLUESHIFT_BUILD_NVRTC");
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").map_err(|e| e.to_string())?).join("kernels");
    let out = PathBuf::from(std::env::var("OUT_DIR").map_err(|e| e.to_string())?);
    let mut texts = Vec::new();
    collect(&root, &root, &mut texts)?;
    texts.sort();
    let mut list = String::from("[\n");
    for (name, path) in &texts {
        let _ = writeln!(list, "({name:?}, include_str!({path:?})),");
    }
    write(&out.join("texts.rs"), list + "]\n")?;
    let images = match std::env::var_os("BLUESHIFT_BUILD_NVRTC").filter(|v| !v.is_empty()) {
        Some(path) => compile(&Nvrtc::load(Some(Path::new(&path)), u32::MAX)?, &texts, &out)?,
        None => String::from("[]\n"),
    };
    write(&out.join("images.rs"), images)
}

/// Names relative to the folder, with slashes, and paths of all texts.
fn collect(root: &Path, folder: &Path, texts: &mut Vec<(String, PathBuf)>) -> Result<(), String> {
    for entry in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            collect(root, &path, texts)?;
        } else if path.extension().is_some_and(|e| e == "cu" || e == "cuh") {
            let relative = path.strip_prefix(root).map_err(|e| e.to_string())?;
            texts.push((relative.to_string_lossy().replace('\\', "/"), path));
        }
    }
    Ok(())
}

/// Compiles every variant to a file of its own; a list of names and files.
fn compile(nvrtc: &Nvrtc, texts: &[(String, PathBuf)], out: &Path) -> Result<String, String> {
    let read = |(name, path): &(String, PathBuf)| {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok::<_, String>((name.clone(), text))
    };
    let texts = texts.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let headers: Vec<_> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let compiled = Variant::map_all(|variant| {
        let name = format!("{}.cu", variant.stem);
        let found = headers.iter().find(|(header, _)| *header == name);
        let (_, text) = found.ok_or_else(|| format!("{name} is missing"))?;
        let source = Source { name: &name, text, headers: &headers };
        nvrtc.compile(&source, &variant.macros, Target::Ptx(OLDEST_CAPABILITY))
    });
    let mut list = String::from("[\n");
    for (variant, compiled) in compiled {
        let path = out.join(format!("{}.ptx", variant.name));
        write(&path, compiled?.image)?;
        let _ = writeln!(list, "({:?}, include_bytes!({path:?}) as &[u8]),", variant.name);
    }
    Ok(list + "]\n")
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}
