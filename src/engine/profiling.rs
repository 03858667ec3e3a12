//! Profiles of the engine's own generations.

use serde::{Deserialize, Serialize};

use super::any_backend::AnyBackend;
use super::backend::Timing;
use super::bench::some_ids;
use super::ledger::{Ledger, Phase, Sum};
use super::policy::Policy;
use super::profile::{Method, Profile};
use super::{Engine, Finish, GenerateOptions};
use crate::error::{Error, Result};

/// What to profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileOptions {
    /// Tokens of the prompt, at least 1.
    pub pp: usize,
    /// Tokens drawn, at least 2.
    pub tg: usize,
}

impl Engine {
    /// Profiles a made-up prompt and answer: see [`Engine::profile_answer`].
    ///
    /// # Errors
    /// [`Error::BadOption`] where there are too few tokens, and those of [`Engine::profile_answer`].
    pub async fn profile(&mut self, options: ProfileOptions) -> Result<Profile> {
        let ProfileOptions { pp, tg } = options;
        if pp < 1 || tg < 2 {
            let (found, expected) = (format!("pp {pp}, tg {tg}"), "pp at least 1, tg at least 2");
            return Err(Error::BadOption { option: "profile", found, expected });
        }
        let prompt = some_ids(pp, self.info.n_vocab);
        self.profile_answer(&prompt, GenerateOptions { max_tokens: tg, ..Default::default() }).await
    }

    /// Generates `max_tokens` tokens, whatever they are, three times: to warm up, with each submit timed, and with each operation timed.
    /// Where the device cannot time operations, batches of each are timed instead of the third. The cache is empty afterwards.
    ///
    /// # Errors
    /// What generating reports.
    pub async fn profile_answer(&mut self, prompt: &[u32], options: GenerateOptions) -> Result<Profile> {
        self.run_timed(prompt, &options, Timing::Off).await?;
        self.run_timed(prompt, &options, Timing::Submits).await?;
        let whole = self.take_ledger().await?;
        if self.times_ops(&whole) {
            self.run_timed(prompt, &options, Timing::Ops).await?;
            let steps = self.take_ledger().await?;
            self.clear();
            return Ok(Profile::new(self.method(), &steps, Some(&whole)));
        }
        self.profile_by_batches(whole).await
    }

    /// Where the time of the last generation went, if it was one with [`Timing::Ops`]; what was timed is then forgotten. Where the device
    /// cannot time operations, batches of each are timed now, and the cache is empty afterwards.
    ///
    /// # Errors
    /// What the device reports.
    pub async fn take_profile(&mut self) -> Result<Option<Profile>> {
        if self.backend.timing() != Timing::Ops {
            return Ok(None);
        }
        self.supersede();
        let ledger = self.take_ledger().await?;
        if self.times_ops(&ledger) {
            return Ok(Some(Profile::new(self.method(), &ledger, None)));
        }
        let mut tokens = Ledger::default();
        tokens.add_tokens(Phase::Decode, ledger.tokens(Phase::Decode) as usize);
        self.profile_by_batches(tokens).await.map(Some)
    }

    /// A whole generation from an empty cache.
    pub(super) async fn run_timed(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        timing: Timing,
    ) -> Result<Finish> {
        self.clear();
        self.run_on(prompt, options, timing).await
    }

    /// A whole generation from what is cached. It ends after `max_tokens` tokens and nowhere else.
    pub(super) async fn run_on(&mut self, prompt: &[u32], options: &GenerateOptions, timing: Timing) -> Result<Finish> {
        let policy = Policy { timing, ..options.policy.unwrap_or(self.policy) };
        let options = GenerateOptions {
            stop: Vec::new(),
            stop_ids: Vec::new(),
            ignore_eos: true,
            logprobs: None,
            policy: Some(policy),
            ..options.clone()
        };
        let mut generation = self.start(prompt, options)?;
        while self.next(&mut generation).await?.is_some() {}
        let ended = generation.finish().cloned();
        ended.ok_or_else(|| Error::Device { reason: "the measured answer has no end".into() })
    }

    /// Times batches of every operation of a decode step. `whole` has the tokens to tell the times of, and the time of their submits
    /// where that is known.
    async fn profile_by_batches(&mut self, mut whole: Ledger) -> Result<Profile> {
        let position = self.cached.len();
        self.clear();
        let mut steps = Ledger::default();
        let tokens = whole.tokens(Phase::Decode);
        steps.add_tokens(Phase::Decode, tokens as usize);
        if let AnyBackend::Gpu(gpu) = &mut self.backend {
            let batches = gpu.time_batches(position).await?;
            for (tag, sum) in &batches.steps {
                let sum = Sum { count: sum.count * tokens, ms: sum.ms * tokens as f64 };
                steps.add_steps(Phase::Decode, tag, sum);
            }
            if whole.busy_ms(Phase::Decode).is_none() {
                whole.add_submit(Phase::Decode, batches.whole_ms * tokens as f64);
            }
        }
        Ok(Profile::new(Method::Batches, &steps, Some(&whole)))
    }

    /// Whether operations can be timed one by one, by what is known after timing submits or operations.
    fn times_ops(&self, seen: &Ledger) -> bool {
        match &self.backend {
            AnyBackend::Cpu(_) => true,
            AnyBackend::Gpu(gpu) => gpu.has_timestamps() && !seen.is_coarse(),
        }
    }

    fn method(&self) -> Method {
        match &self.backend {
            AnyBackend::Cpu(_) => Method::Clock,
            AnyBackend::Gpu(_) => Method::Timestamps,
        }
    }

    async fn take_ledger(&mut self) -> Result<Ledger> {
        match &mut self.backend {
            AnyBackend::Cpu(cpu) => Ok(cpu.take_ledger()),
            AnyBackend::Gpu(gpu) => gpu.take_ledger().await,
        }
    }
}
