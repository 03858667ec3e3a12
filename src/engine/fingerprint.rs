//! Tells models apart by what their keys and values depend on.

use super::backend::WeightSink;
use crate::error::Result;
use crate::gguf::Header;
use crate::model::Model;
use crate::model::weights::WeightDesc;
use crate::plan::WeightId;
use crate::quant::{PlaneLayout, Planes};

/// Bytes of each matrix that are looked at.
const SAMPLE_BYTES: usize = 4096;

/// FNV-1a over words of eight bytes. It finds accidents, not forgeries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hash64(u64);

impl Hash64 {
    pub(super) fn new() -> Self {
        Hash64(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a word.
    pub(super) fn word(&mut self, word: u64) {
        // The shift brings the high bits down, which a product alone never does.
        self.0 = (self.0 ^ word).wrapping_mul(0x100_0000_01b3);
        self.0 ^= self.0 >> 32;
    }

    /// Adds bytes and their number.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        whole.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}

/// Hash of the metadata that hyper-parameters come from, of the bytes a page and of every tensor's name, shape and type.
pub(super) fn of_header(header: &Header, model: &Model) -> Hash64 {
    let mut hash = Hash64::new();
    let architecture = &model.config.architecture;
    hash.bytes(format!("{architecture} {} {}", model.plan.n_vocab, model.plan.page_bytes()).as_bytes());
    let own = |key: &str| key.strip_prefix(architecture.as_str()).is_some_and(|rest| rest.starts_with('.'));
    for (key, value) in header.metadata.iter().filter(|(key, _)| own(key)) {
        hash.bytes(format!("{key} {value:?}").as_bytes());
    }
    for tensor in header.tensors() {
        hash.bytes(format!("{} {:?} {:?}", tensor.name, tensor.dims, tensor.kind).as_bytes());
    }
    hash
}

/// Passes weights on and hashes every vector and the beginning of every matrix.
pub(super) struct Fingerprinting<'a, S> {
    pub(super) sink: &'a mut S,
    pub(super) hash: &'a mut Hash64,
}

impl<S: WeightSink> WeightSink for Fingerprinting<'_, S> {
    fn allocate(&mut self, id: WeightId, desc: &WeightDesc, layout: &PlaneLayout) -> Result<()> {
        self.sink.allocate(id, desc, layout)
    }

    fn write_rows(&mut self, id: WeightId, first_row: usize, n_rows: usize, planes: &Planes) -> Result<()> {
        if first_row == 0 {
            for plane in [&planes.quants, &planes.scales] {
                self.hash.bytes(&plane[..plane.len().min(SAMPLE_BYTES)]);
            }
        }
        self.sink.write_rows(id, first_row, n_rows, planes)
    }

    fn write_vector(&mut self, id: WeightId, values: &[f32]) -> Result<()> {
        self.hash.bytes(bytemuck::cast_slice(values));
        self.sink.write_vector(id, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_counts() {
        let of = |bytes: &[u8]| {
            let mut hash = Hash64::new();
            hash.bytes(bytes);
            hash.value()
        };
        let bytes: Vec<u8> = (0..21).collect();
        let mut seen = vec![of(&bytes), of(&bytes[..20]), of(&[]), of(&[0]), of(&[0; 8])];
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            seen.push(of(&other));
        }
        let n = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), n);
    }
}
