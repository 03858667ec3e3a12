//! A small HTTP server for the tests.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How the server treats range requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    /// As it should.
    Ranges,
    /// Sends the whole file with status 200.
    IgnoresRange,
    /// Sends every path `/x` on to `/moved/x`.
    Redirects,
    /// Answers 404.
    NotFound,
    /// Tells another range than it was asked for.
    WrongRange,
    /// Closes the connection in the middle of each body.
    CutBody,
    /// Cuts the second body only.
    CutOnce,
}

/// A running server. It serves until the process ends.
pub(crate) struct Server {
    /// `http://127.0.0.1:PORT`.
    pub(crate) address: String,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Requests answered so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Serves `files`, each a path (`/name`) and its bytes.
    pub(crate) fn start(mode: Mode, files: Vec<(String, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(AtomicUsize::new(0));
        let (files, counter) = (Arc::new(files), requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (files, counter) = (files.clone(), counter.clone());
                std::thread::spawn(move || while serve(&stream, mode, &files, &counter).is_some() {});
            }
        });
        Self { address, requests }
    }
}

/// Answers one request; `None` ends the connection.
fn serve(mut stream: &TcpStream, mode: Mode, files: &[(String, Vec<u8>)], counter: &AtomicUsize) -> Option<()> {
    let (path, range) = read_request(stream)?;
    let nth = counter.fetch_add(1, Ordering::SeqCst);
    if mode == Mode::Redirects && !path.starts_with("/moved") {
        let head = format!("HTTP/1.1 302 Found\r\nLocation: /moved{path}\r\nContent-Length: 0\r\n\r\n");
        return stream.write_all(head.as_bytes()).ok();
    }
    let path = path.trim_start_matches("/moved");
    let file = files.iter().find(|f| f.0 == path).map(|f| f.1.as_slice());
    let (Some(file), false) = (file, mode == Mode::NotFound) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").ok();
    };
    let Some((first, last)) = range.filter(|_| mode != Mode::IgnoresRange) else {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
        stream.write_all(head.as_bytes()).ok()?;
        return stream.write_all(file).ok();
    };
    if first >= file.len() {
        let head = format!("HTTP/1.1 416 No\r\nContent-Range: bytes */{}\r\nContent-Length: 0\r\n\r\n", file.len());
        return stream.write_all(head.as_bytes()).ok();
    }
    let body = &file[first..file.len().min(last + 1)];
    let told = first + usize::from(mode == Mode::WrongRange);
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {told}-{}/{}\r\nContent-Length: {}\r\n\r\n",
        first + body.len() - 1,
        file.len(),
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    if mode == Mode::CutBody || (mode == Mode::CutOnce && nth == 1) {
        stream.write_all(&body[..body.len() / 2]).ok()?;
        stream.shutdown(std::net::Shutdown::Both).ok()?;
        return None;
    }
    stream.write_all(body).ok()
}

/// Path and first and last byte of the range asked for.
fn read_request(stream: &TcpStream) -> Option<(String, Option<(usize, usize)>)> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_string();
    let mut range = None;
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            return Some((path, range));
        }
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("range") {
            let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
            range = Some((first.parse().ok()?, last.parse().ok()?));
        }
    }
    None
}
