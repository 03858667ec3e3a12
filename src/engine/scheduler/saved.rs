//! Cached beginnings of texts as bytes, for another day or another machine: the bits are the same on every backend.
//!
//! | bytes | content, little-endian |
//! | --- | --- |
//! | 8 | `bluekv` and two zeros |
//! | 4 | version, 1 |
//! | 4 | positions a page |
//! | 8 | the model's fingerprint: its hyper-parameters, tensors and a sample of its weights |
//! | 8 | bytes a page |
//! | 8 | tokens, whole pages |
//! | 8 | bytes of the recurrent states; 0 where there are no tokens or no recurrent layers |
//! | 4 a token | their ids |
//! | bytes a page | keys and values of each page, layer by layer, as `Backend::read_page` gives them |
//! | as told | the recurrent states after the last token, layer by layer, as `Backend::read_state` gives them |
//! | 8 | hash of everything before |

use super::Scheduler;
use crate::engine::backend::Backend;
use crate::engine::fingerprint::Hash64;
use crate::error::{Error, Result};
use crate::plan::PAGE;

const MAGIC: [u8; 8] = *b"bluekv\0\0";
const VERSION: u32 = 1;
/// Bytes before the token ids, and after the pages.
const HEADER_BYTES: usize = 48;
const HASH_BYTES: usize = 8;

impl Scheduler {
    /// The longest beginning of `tokens` that is in the cache, in whole pages, as bytes: of a conversation that has ended, for example. Where
    /// nothing is cached they hold no tokens.
    ///
    /// # Errors
    /// What the device reports.
    pub async fn save(&mut self, tokens: &[u32]) -> Result<Vec<u8>> {
        let found = self.pool.lookup(tokens, self.is_recurrent);
        // Nobody else can take them before this returns.
        found.partial.iter().for_each(|(page, _)| self.pool.release(*page));
        self.pool.release_all(&found.pages);
        let n_tokens = found.pages.len() * PAGE;
        let mut bytes = Vec::from(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((PAGE as u32).to_le_bytes());
        bytes.extend(self.engine.fingerprint.to_le_bytes());
        bytes.extend((self.engine.model.plan.page_bytes() as u64).to_le_bytes());
        bytes.extend((n_tokens as u64).to_le_bytes());
        let state = match found.snapshot {
            Some(snapshot) => self.engine.backend.read_state(snapshot as usize).await?,
            None => Vec::new(),
        };
        bytes.extend((state.len() as u64).to_le_bytes());
        bytes.extend(tokens[..n_tokens].iter().flat_map(|token| token.to_le_bytes()));
        for page in found.pages {
            bytes.extend(self.engine.backend.read_page(page).await?);
        }
        bytes.extend(state);
        let hash = hash_of(&bytes);
        bytes.extend(hash.to_le_bytes());
        Ok(bytes)
    }

    /// Puts what [`Scheduler::save`] gave into the cache: requests that begin with its tokens go on from there. Returns how many tokens there was
    /// room for beside what running sequences use.
    ///
    /// # Errors
    /// [`Error::SavedState`] names what is wrong with the bytes: the first eight, the version, the model, the size, the hash, a token.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<usize> {
        let plan = &self.engine.model.plan;
        let (page_bytes, state_bytes) = (plan.page_bytes(), plan.state_bytes());
        let (fingerprint, n_vocab) = (self.engine.fingerprint, self.engine.info.n_vocab);
        let (tokens, content) = Expected { fingerprint, page_bytes, state_bytes, n_vocab }.read(bytes)?;
        let (content, state) = content.split_at(tokens.len() / PAGE * page_bytes);
        let mut pages: Vec<u32> = Vec::new();
        let mut written = Ok(());
        for (part, content) in tokens.chunks_exact(PAGE).zip(content.chunks_exact(page_bytes)) {
            let Some(page) = self.pool.alloc() else { break };
            written = self.engine.backend.write_page(page, content);
            if written.is_err() {
                self.pool.release(page);
                break;
            }
            pages.push(self.pool.register(pages.last().copied(), part, page));
        }
        let mut n_tokens = pages.len() * PAGE;
        if written.is_ok() && !state.is_empty() {
            // Without their state the tokens are of no use.
            let has_state = match pages.last() {
                Some(last) if n_tokens == tokens.len() => self.restore_state(*last, state),
                _ => Ok(false),
            };
            written = has_state.map(|has_state| n_tokens *= usize::from(has_state));
        }
        self.pool.release_all(&pages);
        written.map(|()| n_tokens)
    }

    /// Says whether there was room.
    fn restore_state(&mut self, page: u32, state: &[u8]) -> Result<bool> {
        let Some(snapshot) = self.pool.reserve_snapshot() else { return Ok(false) };
        let written = self.engine.backend.write_state(snapshot as usize, state);
        match written.is_ok() {
            true => self.pool.attach_snapshot(page, snapshot),
            false => self.pool.release_snapshot(snapshot),
        }
        written.map(|()| true)
    }
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = Hash64::new();
    hash.bytes(bytes);
    hash.value()
}

/// What saved bytes have to agree with.
struct Expected {
    fingerprint: u64,
    page_bytes: usize,
    state_bytes: usize,
    n_vocab: usize,
}

impl Expected {
    /// Checks everything. Returns the tokens, and the pages with the states behind them.
    fn read<'a>(&self, bytes: &'a [u8]) -> Result<(Vec<u32>, &'a [u8])> {
        if bytes.len() < HEADER_BYTES + HASH_BYTES {
            return bad("size", format!("{} bytes", bytes.len()), format!("at least {}", HEADER_BYTES + HASH_BYTES));
        }
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if bytes[..8] != MAGIC {
            return bad("beginning", format!("{:02x?}", &bytes[..8]), format!("{MAGIC:02x?}"));
        }
        if u32_at(8) != VERSION {
            return bad("version", u32_at(8).to_string(), VERSION.to_string());
        }
        if u32_at(12) as usize != PAGE {
            return bad("page", format!("{} positions", u32_at(12)), format!("{PAGE}"));
        }
        if u64_at(16) != self.fingerprint {
            return bad("model", format!("{:016x}", u64_at(16)), format!("{:016x}, the one loaded", self.fingerprint));
        }
        if u64_at(24) != self.page_bytes as u64 {
            return bad("page", format!("{} bytes", u64_at(24)), self.page_bytes.to_string());
        }
        let n_tokens = u64_at(32);
        if n_tokens % PAGE as u64 != 0 {
            return bad("number of tokens", n_tokens.to_string(), format!("a multiple of {PAGE}"));
        }
        let state_bytes = if n_tokens == 0 { 0 } else { self.state_bytes as u64 };
        if u64_at(40) != state_bytes {
            return bad("recurrent state", format!("{} bytes", u64_at(40)), state_bytes.to_string());
        }
        let page_bytes = PAGE as u64 * 4 + self.page_bytes as u64;
        let others = (HEADER_BYTES + HASH_BYTES) as u64 + state_bytes;
        let size = (n_tokens / PAGE as u64).checked_mul(page_bytes).and_then(|n| n.checked_add(others));
        if size != Some(bytes.len() as u64) {
            let wanted = size.map_or("fewer tokens".into(), |size| size.to_string());
            return bad("size", format!("{} bytes", bytes.len()), format!("{wanted} for {n_tokens} tokens"));
        }
        let (body, hash) = bytes.split_at(bytes.len() - HASH_BYTES);
        if hash != hash_of(body).to_le_bytes() {
            return bad("hash", format!("{hash:02x?}"), format!("{:02x?}", hash_of(body).to_le_bytes()));
        }
        let (tokens, pages) = body[HEADER_BYTES..].split_at(n_tokens as usize * 4);
        let tokens: Vec<u32> = tokens.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)).collect();
        match tokens.iter().find(|id| **id as usize >= self.n_vocab) {
            Some(id) => bad("token", id.to_string(), format!("below {}", self.n_vocab)),
            None => Ok((tokens, pages)),
        }
    }
}

fn bad<T>(what: &'static str, found: String, expected: String) -> Result<T> {
    Err(Error::SavedState { what, found, expected })
}
