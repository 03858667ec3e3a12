//! What all constraints over one tokenizer share: the tokens' bytes as a trie.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use toktrie::{INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::{Constraint, Grammar};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// Longest token, in bytes, that can be drawn under a mask; the trie's nodes hold no more levels.
pub(super) const MAX_TOKEN_BYTES: usize = 1000;
/// Most nodes of a trie.
const MAX_NODES: usize = (1 << 22) - 1;
/// Most tokens: ids have 24 bits, one of which stands for none.
const MAX_VOCAB: usize = (1 << 24) - 1;

/// The vocabulary of a model as constraints see it. Cheap to clone, can be shared between threads.
#[derive(Clone)]
pub struct GrammarEnv {
    factory: Arc<ParserFactory>,
    ends: Arc<[u32]>,
    n_vocab: usize,
}

impl GrammarEnv {
    /// For a model whose logits have `n_vocab` values, which may be more or fewer than the tokenizer's tokens; those without a token are never
    /// allowed. Takes two seconds for 128k tokens, and some hundred bytes of memory a token.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] where the vocabulary is larger than the trie can be: 2^24 tokens, 2^22 nodes.
    pub fn new(tokenizer: impl Into<Arc<Tokenizer>>, n_vocab: usize) -> Result<Self> {
        let tokenizer = tokenizer.into();
        let ends: Arc<[u32]> = tokenizer.stop_ids().iter().copied().filter(|id| (*id as usize) < n_vocab).collect();
        if n_vocab == 0 || n_vocab >= MAX_VOCAB {
            return Err(too_large(n_vocab, "tokens", MAX_VOCAB - 1));
        }
        let words: Vec<Vec<u8>> = (0..n_vocab as u32).map(|id| word(&tokenizer, id)).collect();
        let n_nodes = n_nodes(&words);
        if n_nodes > MAX_NODES {
            return Err(too_large(n_nodes, "nodes", MAX_NODES));
        }
        let end = ends.first().copied().unwrap_or(INVALID_TOKEN);
        let mut trie = TokTrie::from(&TokRxInfo::new(n_vocab as u32, end), &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(&ends);
        }
        let spells_all =
            (0..=0xf4).filter(|byte| !matches!(byte, 0xc0 | 0xc1)).all(|byte| trie.token_id(&[byte]).is_some());
        let env: TokEnv = Arc::new(Vocabulary { trie, tokenizer, spells_all });
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|e| Error::Tokenizer { reason: e.to_string() })?;
        *factory.quiet().limits_mut() = limits();
        Ok(Self { factory: Arc::new(factory), ends, n_vocab })
    }

    /// A constraint at the start of its text, its first mask computed.
    ///
    /// # Errors
    /// [`Error::Grammar`], which names the fault.
    pub fn constraint(&self, grammar: &Grammar) -> Result<Constraint> {
        Constraint::new(self.clone(), grammar)
    }

    /// Values of a logits row.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    pub(super) fn factory(&self) -> &ParserFactory {
        &self.factory
    }

    pub(super) fn trie(&self) -> &TokTrie {
        self.factory.tok_env().tok_trie()
    }

    /// Ids that end generation, ascending.
    pub(super) fn ends(&self) -> &[u32] {
        &self.ends
    }
}

impl std::fmt::Debug for GrammarEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarEnv").field("n_vocab", &self.n_vocab).field("ends", &self.ends).finish_non_exhaustive()
    }
}

/// What a grammar may take: at most some seconds to compile, and some hundred milliseconds and megabytes a step.
fn limits() -> ParserLimits {
    ParserLimits { max_grammar_size: 30_000, max_lexer_states: 100_000, verbose_errors: false, ..Default::default() }
}

/// A token's bytes in the trie: behind a marker that no text contains where the token is not text, none where it cannot be drawn.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id);
    let special = tokenizer.is_control(id) || tokenizer.is_eog(id);
    if special {
        [&[TokTrie::SPECIAL_TOKEN_MARKER], &bytes[..bytes.len().min(MAX_TOKEN_BYTES)]].concat()
    } else if bytes.len() > MAX_TOKEN_BYTES || bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
        Vec::new()
    } else {
        bytes.to_vec()
    }
}

/// Nodes of the trie of `words`, the root included.
pub(super) fn n_nodes(words: &[Vec<u8>]) -> usize {
    let mut sorted: Vec<&[u8]> = words.iter().map(Vec::as_slice).filter(|word| !word.is_empty()).collect();
    sorted.sort_unstable();
    let shared = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let mut n = 1 + sorted.first().map_or(0, |word| word.len());
    for pair in sorted.windows(2) {
        // A token that is spelled like another one has its own last node.
        n += (pair[1].len() - shared(pair[0], pair[1])).max(1);
    }
    n
}

fn too_large(found: usize, what: &str, limit: usize) -> Error {
    Error::Tokenizer { reason: format!("{found} {what} in the trie for constrained output, expected 1 to {limit}") }
}

/// The tokenizer as the parser wants it.
struct Vocabulary {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
    /// Whether each byte of UTF-8 has a token, so that any text can be spelled.
    spells_all: bool,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(text, |text| {
            let ids = self.tokenizer.encode_continued(text);
            let spelled = ids.iter().flat_map(|id| self.trie.token(*id));
            if spelled.eq(text.as_bytes()) { ids } else { self.trie.greedy_tokenize(text.as_bytes()) }
        })
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.spells_all
    }
}
