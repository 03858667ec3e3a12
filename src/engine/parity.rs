//! What two backends must agree on: checksums of logits, and the ids drawn.

use serde::{Deserialize, Serialize};

use super::Engine;
use super::fingerprint::Hash64;
use super::options::GenerateOptions;
use crate::error::Result;
use crate::sample::Sampling;

/// What every backend is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParityOptions {
    /// Raw texts.
    pub prompts: Vec<String>,
    /// Tokens drawn after each, in each way of drawing.
    pub tokens: usize,
}

/// What a backend answered; everything in it but who it was must be equal on all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParityReport {
    /// The backend.
    pub backend: String,
    /// The processor's instruction set or the adapter's name.
    pub adapter: String,
    /// By prompt.
    pub answers: Vec<ParityAnswer>,
}

/// The answers to one prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParityAnswer {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// A hash of the bits of every position's logits, in hexadecimal.
    pub logits: String,
    /// Ids drawn greedily.
    pub greedy: Vec<u32>,
    /// Ids drawn at temperature 0.9.
    pub sampled: Vec<u32>,
    /// Ids drawn with every filter and penalty on.
    pub filtered: Vec<u32>,
}

impl Engine {
    /// Answers what every backend is asked; the prompts are fed in chunks of different sizes.
    ///
    /// # Errors
    /// Those of [`Engine::logits`] and [`Engine::start`].
    pub async fn parity(&mut self, options: &ParityOptions) -> Result<ParityReport> {
        let filtered = Sampling {
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 0.9,
            repeat_penalty: 1.1,
            frequency_penalty: 0.1,
            presence_penalty: 0.1,
            ..Sampling::new(0.9, 11)
        };
        let mut answers = Vec::new();
        for (i, prompt) in options.prompts.iter().enumerate() {
            let ids = self.raw_prompt(prompt);
            let mut hash = Hash64::new();
            let logits = self.logits(&ids, [0, 7, 64][i % 3], true).await?;
            logits.iter().for_each(|logit| hash.word(u64::from(logit.to_bits())));
            answers.push(ParityAnswer {
                prompt_tokens: ids.len(),
                logits: format!("{:016x}", hash.value()),
                greedy: self.drawn(&ids, options.tokens, Sampling::GREEDY).await?,
                sampled: self.drawn(&ids, options.tokens, Sampling::new(0.9, 7)).await?,
                filtered: self.drawn(&ids, options.tokens, filtered.clone()).await?,
            });
        }
        let info = self.info();
        Ok(ParityReport { backend: info.backend.clone(), adapter: info.adapter.clone(), answers })
    }

    async fn drawn(&mut self, prompt: &[u32], max_tokens: usize, sampling: Sampling) -> Result<Vec<u32>> {
        let options = GenerateOptions { max_tokens, sampling, ignore_eos: true, ..Default::default() };
        let mut generation = self.start(prompt, options)?;
        let mut ids = Vec::new();
        while let Some(piece) = self.next(&mut generation).await? {
            ids.extend(piece.ids);
        }
        Ok(ids)
    }
}
