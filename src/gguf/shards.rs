//! Models split over several files: `NAME-00001-of-00003.gguf`.

use super::header::Header;
use super::source::Source;
use crate::error::{Error, Result};

const COUNT: &str = "split.count";
const NUMBER: &str = "split.no";
const TENSORS: &str = "split.tensors.count";

/// What the first file says about the split.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    /// Number of files, at least 1.
    pub(super) count: u16,
    /// Tensors of all files together.
    n_tensors: Option<usize>,
}

/// The split, from the header of the file that was opened, which must be the first.
pub(super) fn first_split(source: &Source, header: &Header) -> Result<Split> {
    let count = u16_of(header, COUNT)?.unwrap_or(1).max(1);
    let number = u16_of(header, NUMBER)?.unwrap_or(0);
    if number != 0 {
        return Err(fault(source, format!("this is file {} of {count}, open the first one", u32::from(number) + 1)));
    }
    Ok(Split { count, n_tensors: header.metadata.opt_usize(TENSORS)? })
}

/// Checks that a further file is the one of this number.
pub(super) fn check_part(source: &Source, part: &Header, no: u16, count: u16) -> Result<()> {
    let found = (u16_of(part, NUMBER)?, u16_of(part, COUNT)?);
    if found != (Some(no), Some(count)) {
        let reason = format!("{NUMBER} and {COUNT} are {found:?}, expected {:?}", (no, count));
        return Err(fault(source, reason));
    }
    Ok(())
}

/// Checks that all files together have the tensors the first one promises.
pub(super) fn check_total(source: &Source, header: &Header, split: Split) -> Result<()> {
    let found = header.tensors().len();
    match split.n_tensors {
        Some(expected) if split.count > 1 && expected != found => {
            Err(fault(source, format!("the files have {found} tensors, expected {expected}")))
        }
        _ => Ok(()),
    }
}

/// The name of file `no` (from 0) of `count`, from the name of the first. A query after `?` is kept.
pub(super) fn name_of(first: &str, no: u16, count: u16) -> Result<String> {
    let (path, query) = first.split_at(first.find('?').unwrap_or(first.len()));
    let suffix = suffix(0, count);
    let stem = path.strip_suffix(&suffix).ok_or_else(|| Error::Malformed {
        name: first.into(),
        section: "shards",
        offset: 0,
        reason: format!("the model has {count} files, so the name of the first must end in {suffix}"),
    })?;
    Ok(format!("{stem}{}{query}", self::suffix(no, count)))
}

fn suffix(no: u16, count: u16) -> String {
    format!("-{:05}-of-{count:05}.gguf", u32::from(no) + 1)
}

fn u16_of(header: &Header, key: &str) -> Result<Option<u16>> {
    let value = header.metadata.opt_u64(key)?;
    value
        .map(|v| {
            u16::try_from(v).map_err(|_| Error::BadValue {
                key: key.into(),
                found: v.to_string(),
                expected: "a number below 65536".into(),
            })
        })
        .transpose()
}

fn fault(source: &Source, reason: String) -> Error {
    Error::Malformed { name: source.name().into(), section: "shards", offset: 0, reason }
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn names_of_further_files() {
        let cases = [
            ("m-00001-of-00003.gguf", Some("m-00002-of-00003.gguf")),
            ("https://h/m-00001-of-00003.gguf?x=1", Some("https://h/m-00002-of-00003.gguf?x=1")),
            ("m-00001-of-00004.gguf", None),
            ("m.gguf", None),
        ];
        for (first, expected) in cases {
            assert_eq!(name_of(first, 1, 3).ok().as_deref(), expected, "{first}");
        }
    }
}
