//! Compiled kernels on disk, so that a text is compiled once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use sha2::{Digest, Sha256};

/// How every file begins; the SHA-256 of the image and the image follow.
const MAGIC: &[u8] = b"blueshift kernel 1\n";
const DIGEST_BYTES: usize = 32;

/// The path in a variable of the environment, where it is set.
pub(crate) fn path_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// What a compiled kernel depends on, in short.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// The key of everything that a kernel depends on, part by part.
    pub(crate) fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            // With lengths no two lists of parts are the same text.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Key(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A folder of compiled kernels. Where it cannot be read or written, kernels are compiled anew.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The cache in a folder, which is made when something is kept.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Cache { folder }
    }

    /// The folder of the user's cache, where there is one.
    pub(crate) fn usual_folder() -> Option<PathBuf> {
        let home = || path_in("HOME").map(|home| home.join(".cache"));
        let user = path_in("XDG_CACHE_HOME").or_else(home).or_else(|| path_in("LOCALAPPDATA"));
        user.map(|user| user.join("blueshift").join("kernels"))
    }

    /// The image kept under a key; `None` where there is none, or a damaged one.
    pub(crate) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let file = std::fs::read(self.path(key)).ok()?;
        let (digest, image) = file.strip_prefix(MAGIC)?.split_at_checked(DIGEST_BYTES)?;
        (Sha256::digest(image).as_slice() == digest).then(|| image.to_vec())
    }

    /// Keeps an image. Readers see the whole file or none.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn put(&self, key: &Key, image: &[u8]) -> std::io::Result<()> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        std::fs::create_dir_all(&self.folder)?;
        let unique = format!("{}.{}.{}.part", key.0, std::process::id(), NEXT.fetch_add(1, Relaxed));
        let part = self.folder.join(unique);
        let file = [MAGIC, Sha256::digest(image).as_slice(), image].concat();
        let written = std::fs::write(&part, file).and_then(|()| std::fs::rename(&part, self.path(key)));
        if written.is_err() {
            // Nothing else can be done about what is left of it.
            let _ = std::fs::remove_file(&part);
        }
        written
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(&key.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty cache of one test.
    fn cache(name: &str) -> Cache {
        let folder = std::env::temp_dir().join(format!("blueshift-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Cache::new(folder)
    }

    #[test]
    fn what_is_kept_is_found_until_it_is_damaged() {
        let cache = cache("damaged");
        let (key, image) = (Key::of(["a", "b"]), vec![7; 100]);
        assert_eq!(cache.get(&key), None);
        cache.put(&key, &image).unwrap();
        assert_eq!(cache.get(&key).as_ref(), Some(&image));
        let whole = std::fs::read(cache.path(&key)).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..10], &[]] {
            std::fs::write(cache.path(&key), damaged).unwrap();
            assert_eq!(cache.get(&key), None, "of {} bytes", damaged.len());
        }
        for at in [0, MAGIC.len(), MAGIC.len() + DIGEST_BYTES, whole.len() - 1] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            std::fs::write(cache.path(&key), flipped).unwrap();
            assert_eq!(cache.get(&key), None, "byte {at}");
        }
        cache.put(&key, &image).unwrap();
        assert_eq!(cache.get(&key), Some(image));
        let names: Vec<_> = std::fs::read_dir(&cache.folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [key.0.as_str()], "no parts are left");
        std::fs::remove_dir_all(&cache.folder).unwrap();
    }

    #[test]
    fn keys_depend_on_every_part_and_its_length() {
        let keys = [&["a", "b"][..], &["ab"], &["a", "c"], &["b", "a"], &["a", "b", ""], &[]];
        let all: std::collections::HashSet<_> = keys.iter().map(|parts| Key::of(parts.iter().copied())).collect();
        assert_eq!(all.len(), keys.len());
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error() {
        let file = std::env::temp_dir().join(format!("blueshift-cache-file-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let cache = Cache::new(file.join("folder"));
        assert!(cache.put(&Key::of(["a"]), &[1]).is_err());
        assert_eq!(cache.get(&Key::of(["a"])), None);
        std::fs::remove_file(&file).unwrap();
    }
}
