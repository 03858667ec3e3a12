//! NVRTC, the compiler of CUDA texts, loaded while the program runs. The build script reads this file, too.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

/// Names of the library, the newest first.
const NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
};
/// Folders of a toolkit that hold it.
const SUBFOLDERS: [&str; 4] = ["lib64", "lib", "bin/x64", "bin"];

type Program = *mut c_void;
type Status = c_int;

/// The library's functions.
#[derive(Debug, Clone, Copy)]
struct Functions {
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ptx_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    ptx: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    error: unsafe extern "C" fn(Status) -> *const c_char,
}

/// What a text is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Machine code of one compute capability, for example 90.
    Machine(u32),
    /// PTX, which a driver compiles for that compute capability and later ones.
    Ptx(u32),
}

impl Target {
    /// What the compiler is told for every kernel: the numerics contract forbids fused products.
    pub fn options(self) -> Vec<String> {
        let architecture = match self {
            Target::Machine(capability) => format!("sm_{capability}"),
            Target::Ptx(capability) => format!("compute_{capability}"),
        };
        let fixed = ["--std=c++17", "--device-as-default-execution-space", "--fmad=false"];
        let mut options = vec![format!("--gpu-architecture={architecture}")];
        options.extend(fixed.map(String::from));
        options
    }
}

/// A program's text and everything that it includes, by the name in the `#include`.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
    /// Names and texts.
    pub headers: &'a [(&'a str, &'a str)],
}

/// A compiled program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code, or PTX that ends with a zero byte.
    pub image: Vec<u8>,
    /// Warnings; empty where there are none.
    pub log: String,
}

/// The library, loaded. It stays loaded until the process ends: it does not unload cleanly.
#[derive(Debug)]
pub struct Nvrtc {
    functions: Functions,
    /// Major and minor version.
    pub version: (u32, u32),
    /// Compute capabilities it compiles for, ascending.
    pub capabilities: Vec<u32>,
}

impl Nvrtc {
    /// Loads the library: `named`, a file or its folder, else the first that the system's loader or a toolkit's usual folder has whose
    /// major version is at most `newest`.
    ///
    /// # Errors
    /// A sentence that says what was tried and what each gave.
    pub fn load(named: Option<&Path>, newest: u32) -> Result<Nvrtc, String> {
        let candidates = match named {
            Some(path) if path.is_dir() => NAMES.iter().map(|name| path.join(name)).filter(|p| p.exists()).collect(),
            Some(path) => vec![path.into()],
            None => usual_places(),
        };
        let mut refused = Vec::new();
        for path in candidates {
            match Self::load_file(&path) {
                Ok(nvrtc) if nvrtc.version.0 <= newest => return Ok(nvrtc),
                Ok(Nvrtc { version: (major, minor), .. }) => {
                    refused.push(format!("{} is version {major}.{minor}, at most {newest} is usable", path.display()));
                }
                Err(reason) => refused.push(reason),
            }
        }
        if refused.is_empty() {
            refused.push(format!("{} holds none of {}", named.unwrap_or(Path::new("")).display(), NAMES.join(", ")));
        }
        Err(refused.join("; "))
    }

    fn load_file(path: &Path) -> Result<Nvrtc, String> {
        for builtins in builtins_beside(path) {
            // Where this one is damaged, the first compilation says so.
            let _ = load_for_ever(&builtins);
        }
        let library = load_for_ever(path)?;
        Self::of(library).map_err(|reason| format!("{}: {reason}", path.display()))
    }

    fn of(library: &'static Library) -> Result<Nvrtc, String> {
        // SAFETY: the types are those of nvrtc.h, which are the same since version 11.2.
        let functions = unsafe {
            Functions {
                create: symbol(library, c"nvrtcCreateProgram")?,
                compile: symbol(library, c"nvrtcCompileProgram")?,
                destroy: symbol(library, c"nvrtcDestroyProgram")?,
                log_size: symbol(library, c"nvrtcGetProgramLogSize")?,
                log: symbol(library, c"nvrtcGetProgramLog")?,
                cubin_size: symbol(library, c"nvrtcGetCUBINSize")?,
                cubin: symbol(library, c"nvrtcGetCUBIN")?,
                ptx_size: symbol(library, c"nvrtcGetPTXSize")?,
                ptx: symbol(library, c"nvrtcGetPTX")?,
                error: symbol(library, c"nvrtcGetErrorString")?,
            }
        };
        type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status;
        type Count = unsafe extern "C" fn(*mut c_int) -> Status;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: as above; each is given places for what it writes, the list one for each of the counted.
        let capabilities = unsafe {
            check(functions, symbol::<Version>(library, c"nvrtcVersion")?(&mut major, &mut minor))?;
            check(functions, symbol::<Count>(library, c"nvrtcGetNumSupportedArchs")?(&mut count))?;
            let mut found: Vec<c_int> = vec![0; count.max(0) as usize];
            check(functions, symbol::<Count>(library, c"nvrtcGetSupportedArchs")?(found.as_mut_ptr()))?;
            found.sort_unstable();
            found.into_iter().map(|capability| capability as u32).collect()
        };
        Ok(Nvrtc { functions, version: (major as u32, minor as u32), capabilities })
    }

    /// Compiles a text, with `macros` (`NAME` or `NAME=VALUE`) defined before it.
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn compile(&self, source: &Source, macros: &[String], target: Target) -> Result<Compiled, String> {
        let options = target.options().into_iter().chain(macros.iter().map(|m| format!("--define-macro={m}")));
        let options = Strings::new(options)?;
        let names = Strings::new(source.headers.iter().map(|(name, _)| *name))?;
        let texts = Strings::new(source.headers.iter().map(|(_, text)| *text))?;
        let (name, text) = (c_string(source.name)?, c_string(source.text)?);
        let mut program = std::ptr::null_mut();
        // SAFETY: every pointer is to text that lives until the end of this function, and the counts are those of the lists.
        check(self.functions, unsafe {
            let n_headers = source.headers.len() as c_int;
            let (texts, names) = (texts.pointers.as_ptr(), names.pointers.as_ptr());
            (self.functions.create)(&mut program, text.as_ptr(), name.as_ptr(), n_headers, texts, names)
        })?;
        let program = Created { functions: self.functions, program };
        // SAFETY: the program was created above; the count is the list's.
        let status = unsafe {
            (self.functions.compile)(program.program, options.pointers.len() as c_int, options.pointers.as_ptr())
        };
        let log = program.text(self.functions.log_size, self.functions.log)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
        check(self.functions, status).map_err(|reason| format!("{}: {reason}\n{log}", source.name))?;
        let image = match target {
            Target::Machine(_) => program.text(self.functions.cubin_size, self.functions.cubin)?,
            Target::Ptx(_) => program.text(self.functions.ptx_size, self.functions.ptx)?,
        };
        Ok(Compiled { image, log })
    }
}

fn load_for_ever(path: &Path) -> Result<&'static Library, String> {
    // SAFETY: loading runs the library's initialisers, which NVIDIA's libraries allow at any time.
    let library = unsafe { Library::new(path) }.map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Box::leak(Box::new(library)))
}

/// The second half of the library, which it looks for by its name alone: it is to be loaded before, where it lies in the same folder.
fn builtins_beside(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let is_builtins = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains("nvrtc-builtins") && !name.contains(".alt.") && !name.ends_with(".a")
    };
    entries.map(|entry| entry.path()).filter(is_builtins).collect()
}

/// Where the library may lie: names for the system's loader, then files of toolkits.
fn usual_places() -> Vec<PathBuf> {
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let files = toolkits.chain([PathBuf::from("/usr/local/cuda")]).flat_map(|toolkit| {
        let folders = SUBFOLDERS.map(|folder| toolkit.join(folder));
        folders.into_iter().flat_map(|folder| NAMES.iter().map(move |name| folder.join(name)))
    });
    NAMES.iter().map(PathBuf::from).chain(files.filter(|path| path.exists())).collect()
}

/// A function of the library.
///
/// # Safety
/// `F` must be the function's type.
unsafe fn symbol<F: Copy>(library: &'static Library, name: &CStr) -> Result<F, String> {
    // SAFETY: the caller's.
    let found = unsafe { library.get::<F>(name.to_bytes_with_nul()) };
    found.map(|symbol| *symbol).map_err(|e| e.to_string())
}

fn check(functions: Functions, status: Status) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the function gives a text that is never freed for every status.
    let text = unsafe { CStr::from_ptr((functions.error)(status)) };
    Err(text.to_string_lossy().into_owned())
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a text has a zero byte".into())
}

/// C strings and the list of pointers to them.
struct Strings {
    pointers: Vec<*const c_char>,
    // Held for the pointers' sake.
    _strings: Vec<CString>,
}

impl Strings {
    fn new<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Result<Self, String> {
        let strings: Vec<_> = texts.into_iter().map(|text| c_string(text.as_ref())).collect::<Result<_, _>>()?;
        Ok(Strings { pointers: strings.iter().map(|s| s.as_ptr()).collect(), _strings: strings })
    }
}

/// A program that is destroyed when it is dropped.
struct Created {
    functions: Functions,
    program: Program,
}

impl Created {
    /// Something that the program has: its size and then its bytes.
    fn text(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> Status,
        bytes: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ) -> Result<Vec<u8>, String> {
        let mut n = 0;
        // SAFETY: the program exists until this is dropped.
        check(self.functions, unsafe { size(self.program, &mut n) })?;
        let mut text = vec![0u8; n];
        // SAFETY: as above; the place has as many bytes as the library said.
        check(self.functions, unsafe { bytes(self.program, text.as_mut_ptr().cast()) })?;
        Ok(text)
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        // SAFETY: the program was created and is not used any more. A failure leaves nothing to be done.
        unsafe { (self.functions.destroy)(&mut self.program) };
    }
}
