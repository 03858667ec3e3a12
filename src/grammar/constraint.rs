//! One sequence's constraint.

use std::collections::VecDeque;

use llguidance::TokenParser;
use llguidance::api::TopLevelGrammar;

use super::{Grammar, GrammarEnv, error, fault};
use crate::error::{Error, GrammarFault, Result};

/// Stack of the thread that compiles a grammar, in bytes: 16 KB a level.
#[cfg(not(target_arch = "wasm32"))]
const STACK_BYTES: usize = super::MAX_LEVELS << 14;

/// Which tokens may come next in one sequence. A clone goes its own way from where it was made, so several completions can share a start.
#[derive(Clone)]
pub struct Constraint {
    env: GrammarEnv,
    parser: TokenParser,
    /// Tokens that the grammar forces, the next one first; kept so that a long text is cut into tokens once.
    forced: VecDeque<u32>,
    /// The mask of this state, where it is known.
    mask: Option<Vec<u32>>,
    /// Whether a token that ends generation was accepted.
    ended: bool,
    /// Why it cannot go on.
    failed: Option<(GrammarFault, String)>,
}

impl Constraint {
    pub(super) fn new(env: GrammarEnv, grammar: &Grammar) -> Result<Self> {
        let compiled = grammar.compiled()?;
        let parser = compile(&env, compiled).map_err(|cause| fault::of_grammar(grammar, &cause))?;
        let forced = VecDeque::new();
        let mut constraint = Self { env, parser, forced, mask: None, ended: false, failed: None };
        // What nothing fits shows here, and the first step needs it anyway.
        constraint.mask()?;
        Ok(constraint)
    }

    /// The ids that may come next: bit `id % 32` of word `id / 32`, `ceil(n_vocab / 32)` words. Ids that end generation are among them exactly
    /// where the text is complete. Where the grammar leaves one text only, its tokens are the tokenizer's own.
    ///
    /// # Errors
    /// [`Error::Grammar`]: `TooComplex` where the step takes more work than is allowed, `Unsatisfiable` where no token continues the text. The
    /// error stays.
    pub fn mask(&mut self) -> Result<&[u32]> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => self.compute()?,
        };
        Ok(self.mask.insert(mask))
    }

    /// Tokens that the grammar forces now. They can be fed without a draw, in order, each after [`Constraint::accept`]; drawing under the masks
    /// gives the same ones. Empty where there is a choice, where the text may end, and after an error.
    pub fn forced(&mut self) -> Vec<u32> {
        match self.find_forced() {
            Ok(()) => self.forced.iter().copied().collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Moves on by a token.
    ///
    /// # Errors
    /// [`Error::Grammar`]: `TokenNotAllowed` where it does not continue the text, the constraint being as before; others stay.
    pub fn accept(&mut self, id: u32) -> Result<()> {
        self.check()?;
        if self.env.ends().binary_search(&id).is_ok() {
            if self.ended || !self.is_complete() {
                return Err(self.not_allowed(id));
            }
            self.ended = true;
        } else {
            if self.is_finished() || !self.run(|parser| parser.validate_token(id))? {
                return Err(self.not_allowed(id));
            }
            self.advance(id)?;
            if self.forced.pop_front() != Some(id) {
                self.forced.clear();
            }
        }
        self.mask = None;
        Ok(())
    }

    /// Whether the text can only end here: a token that ends generation was accepted, or no other one can come.
    pub fn is_finished(&self) -> bool {
        self.ended || self.parser.stopped()
    }

    /// Whether the text may end here.
    pub fn is_complete(&mut self) -> bool {
        self.failed.is_none() && (self.is_finished() || self.parser.is_accepting())
    }

    fn compute(&mut self) -> Result<Vec<u32>> {
        self.check()?;
        self.find_forced()?;
        if let Some(id) = self.forced.front() {
            return Ok(only(&[*id], self.env.n_vocab()));
        }
        if self.is_finished() {
            return Ok(only(self.env.ends(), self.env.n_vocab()));
        }
        let n_vocab = self.env.n_vocab();
        let mut mask = Vec::from(self.run(TokenParser::compute_mask)?);
        // The set has room for one id more.
        mask.truncate(n_vocab.div_ceil(32));
        if !n_vocab.is_multiple_of(32) {
            mask[n_vocab / 32] &= (1 << (n_vocab % 32)) - 1;
        }
        // Inside a grammar the parser lets an end of text end a part of it, which here ends the whole.
        let is_complete = self.is_complete();
        for id in self.env.ends() {
            let bit = 1 << (id % 32);
            let word = &mut mask[*id as usize / 32];
            *word = if is_complete { *word | bit } else { *word & !bit };
        }
        if mask.iter().all(|word| *word == 0) {
            return Err(self.fail(GrammarFault::Unsatisfiable, "no token continues the text".into()));
        }
        Ok(mask)
    }

    /// Finds forced tokens where none are known.
    fn find_forced(&mut self) -> Result<()> {
        self.check()?;
        if self.forced.is_empty() && !self.is_finished() {
            self.forced = self.run(|parser| Ok(parser.compute_ff_tokens()))?.into();
        }
        Ok(())
    }

    fn advance(&mut self, id: u32) -> Result<()> {
        self.run(|parser| parser.consume_token(id))?;
        self.run(|parser| parser.check_stop().map(drop))
    }

    /// Runs a part of the parser; what fails there stays failed.
    fn run<T>(&mut self, part: impl FnOnce(&mut TokenParser) -> anyhow::Result<T>) -> Result<T> {
        match fault::guarded(|| part(&mut self.parser)) {
            Ok(value) => Ok(value),
            Err(cause) => match fault::of_parser(&self.parser, &cause) {
                Error::Grammar { fault, reason } => Err(self.fail(fault, reason)),
                other => Err(other),
            },
        }
    }

    fn fail(&mut self, fault: GrammarFault, reason: String) -> Error {
        self.failed = Some((fault, reason.clone()));
        error(fault, reason)
    }

    fn check(&self) -> Result<()> {
        match &self.failed {
            Some((fault, reason)) => Err(error(*fault, reason.clone())),
            None => Ok(()),
        }
    }

    fn not_allowed(&self, id: u32) -> Error {
        error(GrammarFault::TokenNotAllowed, format!("{id} ({})", self.env.trie().token_dbg(id)))
    }
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(self.parser.final_bytes());
        f.debug_struct("Constraint").field("text", &text).field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// The mask of a few ids.
fn only(ids: &[u32], n_vocab: usize) -> Vec<u32> {
    let mut mask = vec![0; n_vocab.div_ceil(32)];
    ids.iter().for_each(|id| mask[*id as usize / 32] |= 1 << (id % 32));
    mask
}

fn parser(env: &GrammarEnv, grammar: TopLevelGrammar) -> anyhow::Result<TokenParser> {
    let mut parser = env.factory().create_parser(grammar)?;
    parser.start_without_prompt();
    // The empty text may be all there is.
    parser.check_stop()?;
    Ok(parser)
}

/// Compiling is recursive, so it has a thread with a stack of its own.
#[cfg(not(target_arch = "wasm32"))]
fn compile(env: &GrammarEnv, grammar: TopLevelGrammar) -> anyhow::Result<TokenParser> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let running = thread.spawn_scoped(scope, || parser(env, grammar))?;
        running.join().unwrap_or_else(|_| Err(anyhow::anyhow!("panic: while compiling")))
    })
}

#[cfg(target_arch = "wasm32")]
fn compile(env: &GrammarEnv, grammar: TopLevelGrammar) -> anyhow::Result<TokenParser> {
    fault::guarded(|| parser(env, grammar))
}
