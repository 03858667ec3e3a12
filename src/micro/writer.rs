//! A plain GGUF writer. It writes what it is told, valid or not: the tests of damaged files use it as well.

/// Collects a header: metadata pairs and tensor entries.
#[derive(Debug, Clone)]
pub struct Writer {
    version: u32,
    alignment: u64,
    n_pairs: u64,
    pairs: Vec<u8>,
    n_tensors: u64,
    entries: Vec<u8>,
    data_bytes: u64,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            version: 3,
            alignment: 32,
            n_pairs: 0,
            pairs: Vec::new(),
            n_tensors: 0,
            entries: Vec::new(),
            data_bytes: 0,
        }
    }
}

/// GGUF's codes of value types.
pub mod value_type {
    #![allow(missing_docs, reason = "the names say it")]
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
}

impl Writer {
    /// A writer of another version than 3.
    pub fn with_version(version: u32) -> Self {
        Self { version, ..Self::default() }
    }

    /// Sets the alignment of tensor data and writes it down. Call it before any tensor is added.
    pub fn alignment(&mut self, alignment: u32) {
        self.alignment = alignment.into();
        self.u32("general.alignment", alignment);
    }

    /// Adds a pair whose value is already encoded.
    pub fn raw(&mut self, key: &str, value_type: u32, encoded: &[u8]) {
        push_string(&mut self.pairs, key.as_bytes());
        self.pairs.extend(value_type.to_le_bytes());
        self.pairs.extend(encoded);
        self.n_pairs += 1;
    }

    /// Adds an integer.
    pub fn u32(&mut self, key: &str, value: u32) {
        self.raw(key, value_type::U32, &value.to_le_bytes());
    }

    /// Adds a float.
    pub fn f32(&mut self, key: &str, value: f32) {
        self.raw(key, value_type::F32, &value.to_le_bytes());
    }

    /// Adds a boolean.
    pub fn bool(&mut self, key: &str, value: bool) {
        self.raw(key, value_type::BOOL, &[value.into()]);
    }

    /// Adds a string.
    pub fn str(&mut self, key: &str, value: &str) {
        let mut encoded = Vec::new();
        push_string(&mut encoded, value.as_bytes());
        self.raw(key, value_type::STRING, &encoded);
    }

    /// Adds an array whose elements are already encoded.
    pub fn array(&mut self, key: &str, element_type: u32, len: u64, elements: &[u8]) {
        let mut encoded = element_type.to_le_bytes().to_vec();
        encoded.extend(len.to_le_bytes());
        encoded.extend(elements);
        self.raw(key, value_type::ARRAY, &encoded);
    }

    /// Adds an array of strings, which need not be UTF-8.
    pub fn strings<S: AsRef<[u8]>>(&mut self, key: &str, strings: &[S]) {
        let mut encoded = Vec::new();
        for s in strings {
            push_string(&mut encoded, s.as_ref());
        }
        self.array(key, value_type::STRING, strings.len() as u64, &encoded);
    }

    /// Adds an array of integers.
    pub fn i32s(&mut self, key: &str, values: &[i32]) {
        let encoded: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.array(key, value_type::I32, values.len() as u64, &encoded);
    }

    /// Adds a tensor of `bytes` bytes behind those added before; gives its offset in the data section.
    pub fn tensor(&mut self, name: &str, dims: &[u64], ggml_type: u32, bytes: u64) -> u64 {
        let offset = self.data_bytes;
        self.tensor_at(name, dims, ggml_type, offset);
        self.data_bytes = (offset + bytes).next_multiple_of(self.alignment);
        offset
    }

    /// Adds an entry with any offset; no room is made for its data.
    pub fn tensor_at(&mut self, name: &str, dims: &[u64], ggml_type: u32, offset: u64) {
        push_string(&mut self.entries, name.as_bytes());
        self.entries.extend((dims.len() as u32).to_le_bytes());
        self.entries.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
        self.entries.extend(ggml_type.to_le_bytes());
        self.entries.extend(offset.to_le_bytes());
        self.n_tensors += 1;
    }

    /// Bytes of the data section, the padding behind the last tensor included.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The header with its padding; the data section follows.
    pub fn header(&self) -> Vec<u8> {
        let mut out = self.sections().concat();
        out.resize(out.len().next_multiple_of(self.alignment.max(1) as usize), 0);
        out
    }

    /// The header's parts: magic, version, tensor count, pair count, pairs, tensor table.
    pub fn sections(&self) -> [Vec<u8>; 6] {
        [
            b"GGUF".to_vec(),
            self.version.to_le_bytes().to_vec(),
            self.n_tensors.to_le_bytes().to_vec(),
            self.n_pairs.to_le_bytes().to_vec(),
            self.pairs.clone(),
            self.entries.clone(),
        ]
    }
}

/// A length of 64 bits, then the bytes.
fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}
