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
            return self.profile_of(steps, Some(&whole)).await;
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
            return self.profile_of(ledger, None).await.map(Some);
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
        Ok(Profile::new(Method::Batches, steps, 0.0, Some(&whole)))
    }

    /// Whether operations can be timed one by one, by what is known after timing submits or operations.
    fn times_ops(&self, seen: &Ledger) -> bool {
        match &self.backend {
            AnyBackend::Cpu(_) => true,
            AnyBackend::Gpu(gpu) => gpu.has_timestamps() && !seen.is_coarse(),
        }
    }

    /// The report of operations that were timed one by one.
    async fn profile_of(&self, steps: Ledger, whole: Option<&Ledger>) -> Result<Profile> {
        let (method, cost_ms) = match &self.backend {
            AnyBackend::Cpu(_) => (Method::Clock, 0.0),
            AnyBackend::Gpu(gpu) => (Method::Timestamps, gpu.timing_cost_ms().await?),
        };
        Ok(Profile::new(method, steps, cost_ms * 1e3, whole))
    }

    async fn take_ledger(&mut self) -> Result<Ledger> {
        match &mut self.backend {
            AnyBackend::Cpu(cpu) => Ok(cpu.take_ledger()),
            AnyBackend::Gpu(gpu) => gpu.take_ledger().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{BackendChoice, LoadOptions};
    use crate::gguf::Source;
    use crate::gpu::list_adapters;
    use crate::micro::MicroModel;
    use crate::quant::QuantType;
    use crate::sample::Sampling;
    use pollster::block_on;

    fn drawn(engine: &mut Engine, options: &GenerateOptions) -> Vec<u32> {
        let mut generation = engine.start(&[5, 80, 21], options.clone()).unwrap();
        let mut ids = Vec::new();
        while let Some(piece) = block_on(engine.next(&mut generation)).unwrap() {
            ids.extend(piece.ids);
        }
        ids
    }

    /// Batches run steps that add up or move the row on; a later answer must not notice.
    #[test]
    fn batches_time_every_step_and_leave_nothing_behind() {
        if block_on(list_adapters()).is_empty() {
            return;
        }
        let source = Source::memory("micro", MicroModel::llama3(QuantType::Q4_0).bytes());
        let load = LoadOptions { backend: BackendChoice::Gpu, n_ctx: Some(64), ..Default::default() };
        let mut engine = block_on(Engine::load(source, load)).unwrap();
        let filtered = Sampling { top_k: 40, top_p: 0.9, ..Sampling::new(1.0, 7) };
        for sampling in [Sampling::GREEDY, filtered] {
            let options = GenerateOptions { max_tokens: 20, sampling, ignore_eos: true, ..Default::default() };
            engine.clear();
            let expected = drawn(&mut engine, &options);
            let mut tokens = Ledger::default();
            tokens.add_tokens(Phase::Decode, 3);
            let profile = block_on(engine.profile_by_batches(tokens)).unwrap();
            assert_eq!((profile.method, profile.tokens, engine.position()), (Method::Batches, 3, 0));
            let plan = &engine.model().plan;
            let steps = plan.tags(&plan.body, true).len() + plan.tags(&plan.head, false).len();
            assert!(profile.ops.iter().map(|op| op.count).sum::<u64>() >= 3 * (steps as u64 + 2), "{profile}");
            assert!(profile.ops.iter().any(|op| op.op == "sample_finish"), "{profile}");
            assert!(profile.gpu_ms.is_some_and(|ms| ms > 0.0), "{profile}");
            assert_eq!(drawn(&mut engine, &options), expected);
        }
    }
}
