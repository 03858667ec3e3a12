//! What stands for constrained output where the crate is built without it: nothing that could exist.

use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// No grammar: the crate was built without the feature `grammar`.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {}

/// See [`Grammar`].
#[derive(Debug, Clone)]
pub enum Constraint {}

/// See [`Grammar`].
#[derive(Debug, Clone)]
pub struct GrammarEnv;

impl GrammarEnv {
    /// Nothing.
    ///
    /// # Errors
    /// None.
    pub fn new(_: std::sync::Arc<Tokenizer>, _: usize) -> Result<Self> {
        Ok(GrammarEnv)
    }

    /// Of a grammar, which cannot be.
    ///
    /// # Errors
    /// None.
    pub fn constraint(&self, grammar: &Grammar) -> Result<Constraint> {
        match *grammar {}
    }
}

impl Constraint {
    pub(crate) fn mask(&mut self) -> Result<&[u32]> {
        match *self {}
    }

    pub(crate) fn forced(&mut self) -> Vec<u32> {
        match *self {}
    }

    pub(crate) fn accept(&mut self, _: u32) -> Result<()> {
        match *self {}
    }

    pub(crate) fn is_finished(&self) -> bool {
        match *self {}
    }
}
