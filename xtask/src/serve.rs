//! A small static file server for loopback: GET and HEAD, byte ranges, one thread a connection.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

/// The longest request head accepted, in bytes.
const MAX_HEAD: u64 = 16 * 1024;

/// A folder and the address prefix it appears under.
pub(crate) struct Mount {
    /// Begins and ends with `/`.
    prefix: &'static str,
    folder: PathBuf,
}

impl Mount {
    /// Serves `folder` under `prefix`, which begins and ends with `/`.
    pub(crate) fn new(prefix: &'static str, folder: PathBuf) -> Self {
        Self { prefix, folder }
    }
}

/// A bound server.
pub(crate) struct Server {
    listener: TcpListener,
    mounts: Arc<Vec<Mount>>,
}

impl Server {
    /// Binds 127.0.0.1. The first mount whose prefix fits a request answers it.
    pub(crate) fn bind(port: u16, mounts: Vec<Mount>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("port {port} of 127.0.0.1 cannot be used; choose another with --port"))?;
        Ok(Self { listener, mounts: Arc::new(mounts) })
    }

    /// The address of the root, with the port the system gave.
    pub(crate) fn address(&self) -> String {
        let port = self.listener.local_addr().map_or(0, |a| a.port());
        format!("http://127.0.0.1:{port}/")
    }

    /// Answers requests until the process ends.
    pub(crate) fn serve(self) -> Result<()> {
        for stream in self.listener.incoming() {
            let (stream, mounts) = (stream?, self.mounts.clone());
            std::thread::spawn(move || {
                // A client that goes away in the middle of an answer is no fault of the server.
                let _ = converse(stream, &mounts);
            });
        }
        Ok(())
    }
}

/// Answers the requests of one connection in turn.
fn converse(stream: TcpStream, mounts: &[Mount]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone()?), stream);
    while let Some(request) = read_request(&mut reader)? {
        answer(&request, mounts)?.send(&mut writer, request.method == "HEAD")?;
    }
    Ok(())
}

#[derive(Debug, Default, PartialEq)]
struct Request {
    method: String,
    /// Path and query as sent.
    target: String,
    /// Value of the `Range` header.
    range: Option<String>,
}

/// The next request's head, or nothing at the end of the connection or at a head that is no HTTP.
fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut head = reader.take(MAX_HEAD);
    let mut line = String::new();
    head.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(target), Some(_)) = (words.next(), words.next(), words.next()) else {
        return Ok(None);
    };
    let mut request = Request { method: method.into(), target: target.into(), range: None };
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("range") => request.range = Some(value.trim().into()),
            None if line.trim_end().is_empty() => return Ok(Some(request)),
            _ => {}
        }
    }
}

struct Response {
    status: &'static str,
    content_type: &'static str,
    /// A `Content-Range` value.
    content_range: Option<String>,
    len: u64,
    body: Body,
}

enum Body {
    Text(&'static str),
    /// A file, at the first byte to send.
    File(File),
}

impl Response {
    fn text(status: &'static str, text: &'static str) -> Self {
        let len = text.len() as u64;
        Self { status, content_type: "text/plain; charset=utf-8", content_range: None, len, body: Body::Text(text) }
    }

    fn send(self, writer: &mut impl Write, head_only: bool) -> std::io::Result<()> {
        let mut head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nAccept-Ranges: bytes\r\nCache-Control: no-cache\r\n",
            self.status, self.content_type, self.len
        );
        if let Some(range) = self.content_range {
            head += &format!("Content-Range: {range}\r\n");
        }
        head += "X-Content-Type-Options: nosniff\r\n\r\n";
        writer.write_all(head.as_bytes())?;
        match self.body {
            _ if head_only => Ok(()),
            Body::Text(text) => writer.write_all(text.as_bytes()),
            Body::File(file) => std::io::copy(&mut file.take(self.len), writer).map(|_| ()),
        }
    }
}

fn answer(request: &Request, mounts: &[Mount]) -> std::io::Result<Response> {
    if request.method != "GET" && request.method != "HEAD" {
        return Ok(Response::text("405 Method Not Allowed", "only GET and HEAD\n"));
    }
    let Some((path, mut file)) = find(&request.target, mounts) else {
        return Ok(Response::text("404 Not Found", "not found\n"));
    };
    let size = file.metadata()?.len();
    let content_type = content_type(&path);
    let whole = Response { status: "200 OK", content_type, content_range: None, len: size, body: Body::Text("") };
    match request.range.as_deref().map_or(Range::Whole, |r| parse_range(r, size)) {
        Range::Whole => Ok(Response { body: Body::File(file), ..whole }),
        Range::Part { first, last } => {
            file.seek(SeekFrom::Start(first))?;
            let content_range = Some(format!("bytes {first}-{last}/{size}"));
            let (len, body) = (last - first + 1, Body::File(file));
            Ok(Response { status: "206 Partial Content", content_range, len, body, ..whole })
        }
        Range::Outside => Ok(Response {
            content_range: Some(format!("bytes */{size}")),
            ..Response::text("416 Range Not Satisfiable", "range outside the file\n")
        }),
    }
}

/// The file a request names. A folder stands for its `index.html`; nothing outside the mounted folder is reachable.
fn find(target: &str, mounts: &[Mount]) -> Option<(PathBuf, File)> {
    let path = decode_percent(target.split(['?', '#']).next()?)?;
    let mount = mounts.iter().find(|m| path.starts_with(m.prefix))?;
    let folder = mount.folder.canonicalize().ok()?;
    let mut file = folder.clone();
    for segment in path[mount.prefix.len()..].split('/').filter(|s| !s.is_empty()) {
        if segment.starts_with('.') || segment.contains(['\\', '\0', ':']) {
            return None;
        }
        file.push(segment);
    }
    if file.is_dir() {
        file.push("index.html");
    }
    let file = file.canonicalize().ok().filter(|f| f.starts_with(&folder) && f.is_file())?;
    Some((file.clone(), File::open(file).ok()?))
}

fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[derive(Debug, PartialEq)]
enum Range {
    /// No range, several ranges, or a range in another unit: the whole file.
    Whole,
    /// First and last byte, both sent.
    Part { first: u64, last: u64 },
    /// No byte of the file is in the range.
    Outside,
}

fn parse_range(header: &str, size: u64) -> Range {
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|r| r.split_once('-')) else {
        return Range::Whole;
    };
    let part = |first: u64, last: u64| {
        if first >= size { Range::Outside } else { Range::Part { first, last: last.min(size - 1) } }
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => part(first, last),
        (Ok(first), Err(_)) if last.is_empty() => part(first, u64::MAX),
        (Err(_), Ok(0)) if first.is_empty() => Range::Outside,
        (Err(_), Ok(suffix)) if first.is_empty() => part(size.saturating_sub(suffix), u64::MAX),
        _ => Range::Whole,
    }
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|e| e.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("json" | "map" | "webmanifest") => "application/json",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("txt" | "md" | "ts") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let cases = [
            ("bytes=0-0", Range::Part { first: 0, last: 0 }),
            ("bytes=2-4", Range::Part { first: 2, last: 4 }),
            ("bytes=2-99", Range::Part { first: 2, last: 9 }),
            ("bytes=9-", Range::Part { first: 9, last: 9 }),
            ("bytes=-3", Range::Part { first: 7, last: 9 }),
            ("bytes=-30", Range::Part { first: 0, last: 9 }),
            ("bytes=10-", Range::Outside),
            ("bytes=-0", Range::Outside),
            ("bytes=4-2", Range::Whole),
            ("bytes=0-1,3-4", Range::Whole),
            ("items=0-1", Range::Whole),
            ("bytes=x-", Range::Whole),
        ];
        for (header, expected) in cases {
            assert_eq!(parse_range(header, 10), expected, "{header}");
        }
    }

    #[test]
    fn paths_stay_inside_their_folder() {
        let root = crate::run::root();
        let mounts = [Mount::new("/x/", root.join("xtask/src")), Mount::new("/", root.join("xtask"))];
        for found in ["/Cargo.toml", "/Cargo.toml?a=b", "/x/main.rs", "/x/%6Dain.rs", "//src//main.rs"] {
            assert!(find(found, &mounts).is_some(), "{found}");
        }
        let refused = [
            "/../Cargo.toml",
            "/%2e%2e/Cargo.toml",
            "/x/..%2f..%2fCargo.toml",
            "/src",
            "/%",
            "/%ff",
            "x",
            "/no",
            "/..",
        ];
        for target in refused {
            assert!(find(target, &mounts).is_none(), "{target}");
        }
    }

    #[test]
    fn requests() {
        let head = "GET /a HTTP/1.1\r\nHost: x\r\nRANGE: bytes=0-1\r\n\r\nrest";
        let expected = Request { method: "GET".into(), target: "/a".into(), range: Some("bytes=0-1".into()) };
        assert_eq!(read_request(&mut head.as_bytes()).unwrap(), Some(expected));
        for broken in ["", "nonsense\r\n\r\n", "GET /a HTTP/1.1\r\nHost: x"] {
            assert_eq!(read_request(&mut broken.as_bytes()).unwrap(), None, "{broken:?}");
        }
    }
}
