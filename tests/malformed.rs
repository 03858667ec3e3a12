//! Damaged files are refused with an error that says what is wrong, whatever they are read from.

mod support;

use std::path::PathBuf;

use blueshift::gguf::{self, GgufFile, Source};
use blueshift::micro::MicroModel;
use blueshift::micro::writer::{Writer, value_type};
use blueshift::quant::QuantType;
use blueshift::{Error, Result};
use pollster::block_on;
use support::{Mode, Server};

const F32: u32 = 0;
const Q8_0: u32 = 8;

/// A small valid file: metadata of every shape, one tensor of 64 F32 and one of 2 rows of 64 in Q8_0.
fn sample() -> Writer {
    let mut w = Writer::default();
    w.str("general.architecture", "llama");
    w.u32("llama.block_count", 1);
    w.bool("flag", true);
    w.strings("tokens", &[b"a".as_slice(), b"\xff\xfe", b""]);
    w.i32s("empty", &[]);
    let nested = [value_type::U32.to_le_bytes().as_slice(), &1u64.to_le_bytes(), &7u32.to_le_bytes()].concat();
    w.array("nested", value_type::ARRAY, 2, &nested.repeat(2));
    w.tensor("norm", &[64], F32, 256);
    w.tensor("matrix", &[64, 2], Q8_0, 136);
    w
}

fn file_of(w: &Writer) -> Vec<u8> {
    let mut bytes = w.header();
    bytes.resize(bytes.len() + w.data_bytes() as usize, 0);
    bytes
}

/// A file on disk that goes when it is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("blueshift-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a writable temporary directory");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open_memory(bytes: &[u8]) -> Result<GgufFile> {
    block_on(gguf::open(Source::memory("memory", bytes.to_vec())))
}

fn open_file(name: &str, bytes: &[u8]) -> Result<GgufFile> {
    let file = Temporary::new(name, bytes);
    block_on(gguf::open(Source::file(&file.0)?))
}

fn open_http(url: &str) -> Result<GgufFile> {
    block_on(async { gguf::open(Source::http(url).await?).await })
}

/// Files that must be refused: a name, the bytes, a part of the message.
fn damaged() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let bytes_of = |change: fn(&mut Writer)| {
        let mut w = sample();
        change(&mut w);
        file_of(&w)
    };
    let patched = |at: usize, with: &[u8]| {
        let mut bytes = file_of(&sample());
        bytes[at..at + with.len()].copy_from_slice(with);
        bytes
    };
    vec![
        ("magic", patched(0, b"PK\x03\x04"), "expected \"GGUF\""),
        ("version 1", file_of(&Writer::with_version(1)), "version 1, expected 2 or 3"),
        ("version 9", file_of(&Writer::with_version(9)), "version 9, expected 2 or 3"),
        ("big-endian", patched(4, &3u32.to_be_bytes()), "big-endian"),
        ("tensor count", patched(8, &u64::MAX.to_le_bytes()), "tensors, but the rest of the file has room"),
        ("pair count", patched(16, &(1u64 << 40).to_le_bytes()), "metadata pairs, but"),
        ("key length", patched(24, &u64::MAX.to_le_bytes()), "expected 1 to 65535"),
        ("same key", bytes_of(|w| w.bool("flag", false)), "key \"flag\" appears twice"),
        ("value type", bytes_of(|w| w.raw("k", 13, &[0; 8])), "value type 13"),
        ("string length", bytes_of(|w| w.raw("k", value_type::STRING, &u64::MAX.to_le_bytes())), "the file ends after"),
        ("element type", bytes_of(|w| w.array("k", 99, 1, &[0; 8])), "value type 99"),
        ("array length", bytes_of(|w| w.array("k", value_type::U32, 1 << 61, &[0; 8])), "array elements, but"),
        ("nesting", bytes_of(|w| w.array("k", value_type::ARRAY, 1, &deep_array(9))), "nested deeper"),
        ("alignment 0", bytes_of(|w| w.u32("general.alignment", 0)), "expected a power of two"),
        ("alignment 48", bytes_of(|w| w.u32("general.alignment", 48)), "expected a power of two"),
        ("alignment type", bytes_of(|w| w.bool("general.alignment", true)), "general.alignment is true"),
        ("no dimensions", bytes_of(|w| w.tensor_at("t", &[], F32, 512)), "0 dimensions"),
        ("5 dimensions", bytes_of(|w| w.tensor_at("t", &[1; 5], F32, 512)), "5 dimensions"),
        ("empty dimension", bytes_of(|w| w.tensor_at("t", &[32, 0], F32, 512)), "a dimension is zero"),
        ("overflow", bytes_of(|w| w.tensor_at("t", &[1 << 33; 4], F32, 512)), "its size overflows"),
        ("byte overflow", bytes_of(|w| w.tensor_at("t", &[1 << 31, 1 << 31], F32, 512)), "its size overflows"),
        ("half a block", bytes_of(|w| w.tensor_at("t", &[48], Q8_0, 512)), "expected a multiple of 32"),
        ("type Q2_K", bytes_of(|w| w.tensor_at("t", &[256], 10, 512)), "tensor t: type Q2_K (10)"),
        ("unknown type", bytes_of(|w| w.tensor_at("t", &[256], 1000, 512)), "unknown type 1000"),
        ("misaligned", bytes_of(|w| w.tensor_at("t", &[1], F32, 516)), "expected a multiple of 32"),
        ("out of range", bytes_of(|w| w.tensor_at("t", &[1], F32, 1 << 20)), "but the file ends at"),
        ("offset overflow", bytes_of(|w| w.tensor_at("t", &[1], F32, u64::MAX - 31)), "but the file ends at"),
        ("overlap", bytes_of(|w| w.tensor_at("t", &[1], F32, 32)), "tensor t overlaps norm"),
        ("same tensor", bytes_of(|w| _ = w.tensor("norm", &[1], F32, 4)), "tensor norm appears twice"),
        ("tensor name", bytes_of(|w| w.tensor_at("", &[1], F32, 512)), "tensor name of 0 bytes"),
        ("missing shards", bytes_of(|w| w.u32("split.count", 3)), "must end in -00001-of-00003.gguf"),
        ("second shard", bytes_of(|w| w.u32("split.no", 1)), "open the first one"),
    ]
}

/// The elements of an array of arrays, `depth` deep.
fn deep_array(depth: usize) -> Vec<u8> {
    let inner = if depth == 0 { Vec::new() } else { deep_array(depth - 1) };
    let kind = if depth == 0 { value_type::U32 } else { value_type::ARRAY };
    [kind.to_le_bytes().as_slice(), &u64::from(depth > 0).to_le_bytes(), &inner].concat()
}

#[test]
fn damaged_files_are_refused() {
    let cases = damaged();
    let files = cases.iter().enumerate().map(|(i, c)| (format!("/{i}"), c.1.clone())).collect();
    let server = Server::start(Mode::Ranges, files);
    for (i, (name, bytes, message)) in cases.iter().enumerate() {
        let results = [
            open_memory(bytes),
            open_file(&format!("damaged-{i}"), bytes),
            open_http(&format!("{}/{i}", server.address)),
        ];
        for result in results {
            let error = result.expect_err(name).to_string();
            assert!(error.contains(message), "{name}: {error:?} should contain {message:?}");
        }
    }
}

#[test]
fn every_cut_is_refused() {
    let bytes = file_of(&sample());
    assert!(open_memory(&bytes).is_ok());
    // The last tensor's padding is not needed.
    let needed = bytes.len() - 160 + 136;
    for len in 0..needed {
        let error = open_memory(&bytes[..len]).expect_err("a cut file");
        assert!(matches!(error, Error::NotGguf { .. } | Error::Malformed { .. }), "{len}: {error}");
    }
    assert!(open_memory(&bytes[..needed]).is_ok());
}

#[test]
fn cuts_at_sections_are_refused_from_file_and_http() {
    let sample = sample();
    let bytes = file_of(&sample);
    let mut ends = vec![0];
    ends.extend(sample.sections().iter().scan(0, |end, s| {
        *end += s.len();
        Some(*end)
    }));
    ends.push(sample.header().len());
    let files = ends.iter().map(|end| (format!("/{end}"), bytes[..*end].to_vec())).collect();
    let server = Server::start(Mode::Ranges, files);
    for end in ends {
        assert!(open_file(&format!("cut-{end}"), &bytes[..end]).is_err(), "{end}");
        assert!(open_http(&format!("{}/{end}", server.address)).is_err(), "{end}");
    }
}

#[test]
fn lenient_where_it_does_no_harm() {
    let mut w = Writer::with_version(2);
    w.alignment(64);
    w.strings("tokens", &[b"a".as_slice(), b"\xff\xfe", b""]);
    w.i32s("empty", &[]);
    w.u32("stray.key", 1);
    // NaN in a scale is for the loader to find.
    w.tensor("matrix", &[32], Q8_0, 34);
    let mut bytes = file_of(&w);
    let data = w.header().len();
    bytes[data..data + 2].copy_from_slice(&0x7e00u16.to_le_bytes());

    let file = open_memory(&bytes).expect("a valid file");
    let metadata = &file.header.metadata;
    let tokens: Vec<&[u8]> = metadata.byte_strings("tokens").expect("strings").collect();
    assert_eq!(tokens, [b"a".as_slice(), b"\xff\xfe", b""]);
    let tokens: Vec<_> = metadata.strings("tokens").expect("strings").collect();
    assert_eq!(tokens, ["a", "\u{fffd}\u{fffd}", ""]);
    assert_eq!(metadata.strings("empty").expect("an empty array is of every kind").count(), 0);

    let matrix = file.header.require("matrix").expect("there");
    assert_eq!(matrix.offset % 64, 0);
    let mut scale = [0; 2];
    block_on(file.read_tensor(matrix, 0..2, &mut scale)).expect("inside");
    assert_eq!(scale, 0x7e00u16.to_le_bytes());
    let past_the_end = block_on(file.read_tensor(matrix, 33..35, &mut scale));
    assert!(matches!(past_the_end, Err(Error::OutOfRange { offset: 33, size: 34, .. })));
    assert!(matches!(file.header.require("none"), Err(Error::MissingTensor { .. })));
}

#[test]
fn sources_give_the_same_tensors() {
    // A vocabulary that makes the header longer than the first read over HTTP.
    let model = MicroModel { vocab: 60_000, ..MicroModel::tiny(QuantType::Q4_0) };
    let bytes = model.bytes();
    let on_disk = Temporary::new("same", &bytes);
    let server = Server::start(Mode::Ranges, vec![("/m.gguf".into(), bytes.clone())]);
    let memory = open_memory(&bytes).expect("memory");
    let file = block_on(gguf::open(Source::file(&on_disk.0).expect("a file"))).expect("file");
    let http = open_http(&format!("{}/m.gguf", server.address)).expect("http");
    assert!(server.requests() <= 2, "{} requests for the header", server.requests());
    assert_eq!(memory.header.tensors(), http.header.tensors());
    assert!(http.tensor_bytes(&http.header.tensors()[0]).is_none());

    let info = memory.header.require("blk.1.ffn_down.weight").expect("there");
    let expected = memory.tensor_bytes(info).expect("in memory");
    assert_eq!(file.tensor_bytes(info), Some(expected));
    for source in [&memory, &file, &http] {
        let mut bytes = vec![0; 90];
        block_on(source.read_tensor(info, 18..108, &mut bytes)).expect("inside");
        assert_eq!(bytes, expected[18..108]);
    }
}

#[test]
fn servers_of_every_kind() {
    let model = MicroModel { vocab: 60_000, ..MicroModel::tiny(QuantType::Q4_0) }.bytes();
    let cases = [
        (Mode::IgnoresRange, Some("ignored the Range header")),
        (Mode::NotFound, Some("status 404")),
        (Mode::WrongRange, Some("Content-Range is")),
        (Mode::CutBody, Some("did not arrive")),
        (Mode::CutOnce, None),
        (Mode::Redirects, None),
    ];
    for (mode, message) in cases {
        let server = Server::start(mode, vec![("/m.gguf".into(), model.clone())]);
        let result = open_http(&format!("{}/m.gguf", server.address));
        match (result, message) {
            (Ok(_), None) => {}
            (Err(error), Some(message)) if error.to_string().contains(message) => {}
            (result, _) => panic!("{mode:?}: {:?}, expected {message:?}", result.map(|f| f.header.version)),
        }
    }
    assert!(matches!(open_http("http://127.0.0.1:1/m.gguf"), Err(Error::Http { .. })));
    assert!(matches!(Source::file("/no/such/file"), Err(Error::Io { .. })));
    assert!(matches!(Source::file(std::env::temp_dir()), Err(Error::Io { .. })));
}

/// Three files of one model, each with one tensor.
fn shards(count: u32, wrong_number: bool) -> Vec<(String, Vec<u8>)> {
    let shard = |no: u32| {
        let mut w = Writer::default();
        w.u32("split.no", if wrong_number { 0 } else { no });
        w.u32("split.count", count);
        w.u32("split.tensors.count", 3);
        w.tensor(&format!("t{no}"), &[8], F32, 32);
        (format!("/m-{:05}-of-{count:05}.gguf", no + 1), file_of(&w))
    };
    (0..3).map(shard).collect()
}

#[test]
fn shards_are_joined() {
    let server = Server::start(Mode::Ranges, shards(3, false));
    let model = open_http(&format!("{}/m-00001-of-00003.gguf", server.address)).expect("three files");
    assert_eq!(model.sources.len(), 3);
    let of: Vec<_> = model.header.tensors().iter().map(|t| (t.name.as_str(), t.shard)).collect();
    assert_eq!(of, [("t0", 0), ("t1", 1), ("t2", 2)]);

    let cases = [(shards(4, false), "status 404"), (shards(3, true), "expected (1, 3)")];
    for (files, message) in cases {
        let path = files[0].0.clone();
        let server = Server::start(Mode::Ranges, files);
        let error = open_http(&format!("{}{path}", server.address)).expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    }
    let twice = async |_: &str| Ok(Source::memory("again", shards(3, false).swap_remove(1).1));
    let first = Source::memory("m-00001-of-00003.gguf", shards(3, false).swap_remove(0).1);
    let error = block_on(gguf::open_with(first, twice)).expect_err("the same file twice").to_string();
    assert!(error.contains("split.no and split.count are"), "{error}");
}
