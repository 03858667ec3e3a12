//! Opening a model: the headers of all its files.

use std::ops::Range;

use super::cursor::{Cursor, Stop};
use super::header::{Header, parse};
use super::shards;
use super::source::Source;
use super::tensor::TensorInfo;
use crate::error::{Error, Result};

/// Bytes of the first read of a header; each further read doubles it.
const FIRST_READ: u64 = 1 << 20;
/// Longest header read. A vocabulary of 262,144 tokens takes about 10 MB.
const MAX_HEADER_BYTES: u64 = 256 << 20;

/// An opened model: its header and the files its tensors are read from.
#[derive(Debug)]
pub struct GgufFile {
    /// Metadata and tensors of all files.
    pub header: Header,
    /// The model's files; `TensorInfo::shard` is an index into it.
    pub sources: Vec<Source>,
}

/// Opens the model whose first or only file is `source`. Its other files, if it has any, lie beside it.
///
/// # Errors
/// `NotGguf`, `Malformed`, `BadValue`, `BadTensor`, or the source's own errors.
pub async fn open(source: Source) -> Result<GgufFile> {
    let first = source.clone();
    open_with(source, async |name| first.sibling(name).await).await
}

/// Like `open`; `sibling` opens a further file of the model by its name.
///
/// # Errors
/// Those of `open` and of `sibling`.
pub async fn open_with(source: Source, mut sibling: impl AsyncFnMut(&str) -> Result<Source>) -> Result<GgufFile> {
    let mut header = read_header(&source, 0).await?;
    let split = shards::first_split(&source, &header)?;
    let mut sources = vec![source];
    for no in 1..split.count {
        let next = sibling(&shards::name_of(sources[0].name(), no, split.count)?).await?;
        let mut part = read_header(&next, no as usize).await?;
        shards::check_part(&next, &part, no, split.count)?;
        header.append(next.name(), part.take_tensors())?;
        sources.push(next);
    }
    shards::check_total(&sources[0], &header, split)?;
    Ok(GgufFile { header, sources })
}

impl GgufFile {
    /// Reads bytes `range` of a tensor into `buf`.
    ///
    /// # Errors
    /// `OutOfRange` where `range` is not inside the tensor or `buf` has another length, or the source's own errors.
    pub async fn read_tensor(&self, info: &TensorInfo, range: Range<u64>, buf: &mut [u8]) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        let source = self.sources.get(info.shard);
        match source {
            Some(source) if range.end <= info.bytes && len == buf.len() as u64 => {
                source.read_into(info.offset + range.start, buf).await
            }
            _ => Err(Error::OutOfRange {
                name: format!("tensor {}", info.name),
                offset: range.start,
                len: buf.len() as u64,
                size: info.bytes,
            }),
        }
    }

    /// A tensor's bytes, where its source holds them in memory.
    pub fn tensor_bytes(&self, info: &TensorInfo) -> Option<&[u8]> {
        let all = self.sources.get(info.shard)?.resident()?;
        all.get(usize::try_from(info.offset).ok()?..usize::try_from(info.end()).ok()?)
    }
}

/// Reads one file's header, in growing reads where the file is not in memory.
async fn read_header(source: &Source, shard: usize) -> Result<Header> {
    if let Some(all) = source.resident() {
        return match parse(&mut Cursor::new(source.name(), all, source.len()), shard) {
            Ok(header) => Ok(header),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::NeedMore(needed)) => Err(too_long(source, needed)),
        };
    }
    let mut prefix = Vec::new();
    let mut wanted = FIRST_READ;
    loop {
        let have = prefix.len();
        let len = wanted.min(source.len());
        prefix.reserve_exact(len as usize - have);
        prefix.resize(len as usize, 0);
        source.read_into(have as u64, &mut prefix[have..]).await?;
        match parse(&mut Cursor::new(source.name(), &prefix, source.len()), shard) {
            Ok(header) => return Ok(header),
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::NeedMore(needed)) if needed > MAX_HEADER_BYTES => return Err(too_long(source, needed)),
            Err(Stop::NeedMore(needed)) => wanted = needed.max(2 * wanted).min(MAX_HEADER_BYTES),
        }
    }
}

fn too_long(source: &Source, needed: u64) -> Error {
    Error::Malformed {
        name: source.name().into(),
        section: "header",
        offset: 0,
        reason: format!("the header has {needed} bytes or more, expected at most {MAX_HEADER_BYTES}"),
    }
}
