//! The kernels' texts, embedded, and what each variant is compiled from.

use blueshift::gpu::Kernel;

use crate::variants::Variant;

/// Names relative to `kernels/` and texts, sorted.
const TEXTS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/texts.rs"));
/// Variants' names and their PTX, where the build compiled it.
const IMAGES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The PTX of a variant, where the build compiled it.
pub(crate) fn embedded_ptx(variant: &Variant) -> Option<&'static [u8]> {
    IMAGES.iter().find(|(name, _)| *name == variant.name).map(|(_, image)| *image)
}

impl Variant {
    /// The variant that is a kernel; `None` where CUDA does not have it: the forms of matmuls that others have.
    pub fn of(kernel: Kernel) -> Option<Variant> {
        // An operation without a kernel here does not compile.
        match kernel {
            Kernel::MatMul { .. } | Kernel::ExpertMatMul { .. } | Kernel::Embed(_) | Kernel::RmsNorm(_) => {}
            Kernel::RopeAppend(_) | Kernel::Attention(_) | Kernel::AttentionMerge(_) => {}
            Kernel::GatedActivation(_) | Kernel::GatedNorm(_) | Kernel::GatedAdd => {}
            Kernel::DeltaPrepare | Kernel::DeltaRule { .. } | Kernel::Route | Kernel::CombineExperts => {}
            Kernel::Sample | Kernel::SampleAdjust | Kernel::SampleFilter | Kernel::SampleKept => {}
            Kernel::SampleFinish | Kernel::StreamRead | Kernel::Empty => {}
        }
        let name = kernel.name();
        Variant::all().into_iter().find(|variant| variant.name == name)
    }

    /// Whether its launch is to give shared memory, as many bytes as its module says.
    pub(crate) fn asks_for_shared_memory(&self) -> bool {
        self.texts().iter().any(|(_, text)| text.contains("\nDYNAMIC_SHARED("))
    }

    /// The name of its text.
    pub fn file(&self) -> String {
        format!("{}.cu", self.stem)
    }

    /// Its text and all that it may include, itself and by way of others: names and texts, the variant's own first. Which of them count
    /// is up to its macros.
    pub fn texts(&self) -> Vec<(&'static str, &'static str)> {
        let mut found: Vec<(&'static str, &'static str)> = Vec::new();
        let mut wanted = vec![self.file()];
        while let Some(name) = wanted.pop() {
            let is_new = found.iter().all(|(there, _)| *there != name);
            if let Some(entry) = TEXTS.iter().find(|(there, _)| *there == name).filter(|_| is_new) {
                found.push(*entry);
                wanted.extend(includes(entry.1));
            }
        }
        found
    }
}

/// The names in a text's lines `#include "name"`.
fn includes(text: &str) -> impl Iterator<Item = String> {
    let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("#include"));
    names.filter_map(|rest| Some(rest.trim().strip_prefix('"')?.split_once('"')?.0.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_found() {
        let text = "#include \"shared/exact.cuh\"\n  #include  \"a.cuh\" // why\n#include <b>\n// #include \"c.cuh\"\n";
        assert_eq!(includes(text).collect::<Vec<_>>(), ["shared/exact.cuh", "a.cuh"]);
    }
}
