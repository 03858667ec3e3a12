//! The engine as JavaScript sees it: two classes, used by the npm package's worker. Nothing else knows JavaScript.
//!
//! Options and results cross the border as JSON text (`json/`), errors as `Error` objects with a `code` (`error.rs`).

pub mod checks;
mod error;
mod grammar;
mod json;
mod reading;
mod requests;
mod runner;

use js_sys::Function;
use wasm_bindgen::prelude::*;

use crate::engine::{self, Engine, LoadOptions};
use crate::gguf::Source;
use crate::model::load::Progress;

use error::to_js;
use reading::{Asked, Reading};
use requests::Requests;
use runner::Runner;

/// Sends panics to the console with their message and place.
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
}

/// A loaded model. It answers one prompt ([`Model::start`], [`Model::next`]) or many at once ([`Model::submit`], [`Model::step`]); going from one
/// way to the other forgets the cache and ends what is under way.
#[wasm_bindgen]
pub struct Model {
    runner: Runner,
    requests: Requests,
}

#[wasm_bindgen]
impl Model {
    /// Loads from an address that answers range requests. `options` is `{backend, contextLength, parallel, cacheBytes, kv}` as JSON;
    /// `on_progress` is called with bytes, total bytes and the tensor's name.
    ///
    /// # Errors
    /// Whatever [`Engine::load`] reports, as a JavaScript `Error`.
    pub async fn from_url(url: String, options: String, on_progress: Function) -> Result<Model, JsValue> {
        let source = Source::http(&url).await.map_err(to_js)?;
        Self::load(source, &options, on_progress).await
    }

    /// Loads from a `Blob` or `File`, with the same arguments as [`Model::from_url`].
    ///
    /// # Errors
    /// Whatever [`Engine::load`] reports, as a JavaScript `Error`.
    pub async fn from_blob(blob: web_sys::Blob, options: String, on_progress: Function) -> Result<Model, JsValue> {
        Self::load(Source::blob(blob), &options, on_progress).await
    }

    async fn load(source: Source, options: &str, on_progress: Function) -> Result<Model, JsValue> {
        let options: json::Load = json::read(options)?;
        let progress = move |p: Progress<'_>| {
            let (bytes, total) = (JsValue::from(p.bytes as f64), JsValue::from(p.total as f64));
            // A throwing callback must not stop a load.
            let _ = on_progress.call3(&JsValue::NULL, &bytes, &total, &JsValue::from(p.tensor));
        };
        let options = LoadOptions {
            backend: options.backend.into(),
            n_ctx: options.context_length,
            slots: options.parallel,
            cache_bytes: options.cache_bytes,
            kv: options.kv.into(),
            progress: Some(Box::new(progress)),
            ..LoadOptions::default()
        };
        let engine = Engine::load(source, options).await.map_err(to_js)?;
        Ok(Self { runner: Runner::new(engine), requests: Requests::new() })
    }

    /// What is loaded and what executes it, as JSON.
    ///
    /// # Errors
    /// Where the device has failed, as below.
    pub fn info(&self) -> Result<String, JsValue> {
        let engine = self.runner.peek().map_err(to_js)?;
        Ok(json::write(&json::Info::new(engine.info(), engine.slots())))
    }

    /// What was done so far, as JSON: `{device, scheduler}`, the latter `null` where one prompt was answered last.
    ///
    /// # Errors
    /// Where the device has failed.
    pub fn stats(&self) -> Result<String, JsValue> {
        let device = self.runner.peek().map_err(to_js)?.counters();
        Ok(json::write(&json::Stats { device, scheduler: self.runner.peek_scheduler().map(|s| s.counters()) }))
    }

    /// Measures the model: `options` is a [`engine::BenchOptions`], the result a [`engine::BenchReport`], both as JSON.
    ///
    /// # Errors
    /// Whatever [`Engine::bench`] reports, as a JavaScript `Error`.
    pub async fn bench(&mut self, options: String) -> Result<String, JsValue> {
        let report = self.alone()?.bench(json::read(&options)?).await.map_err(to_js)?;
        Ok(json::write(&report))
    }

    /// What this backend answers, for comparing it with others: `options` is a [`engine::ParityOptions`], the result a
    /// [`engine::ParityReport`], both as JSON.
    ///
    /// # Errors
    /// Whatever [`Engine::parity`] reports, as a JavaScript `Error`.
    pub async fn parity(&mut self, options: String) -> Result<String, JsValue> {
        let report = self.alone()?.parity(&json::read(&options)?).await.map_err(to_js)?;
        Ok(json::write(&report))
    }

    /// Tells where the time of a made-up answer goes: `options` is a [`engine::ProfileOptions`], the result a [`engine::Profile`], both as
    /// JSON. The cache is empty afterwards.
    ///
    /// # Errors
    /// Whatever [`Engine::profile`] reports, as a JavaScript `Error`.
    pub async fn profile(&mut self, options: String) -> Result<String, JsValue> {
        let profile = self.alone()?.profile(json::read(&options)?).await.map_err(to_js)?;
        Ok(json::write(&profile))
    }

    /// The token ids of a text as a raw prompt.
    ///
    /// # Errors
    /// Where the device has failed.
    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>, JsValue> {
        Ok(self.runner.peek().map_err(to_js)?.raw_prompt(text))
    }

    /// Begins a generation. `prompt` is `{messages, tools, toolChoice}` or `{text}`, `options` all of the package's
    /// `EngineOptions`, both as JSON.
    ///
    /// # Errors
    /// Where the chat template fails, the prompt does not fit the context, a tool cannot be declared or an option is out of its range.
    pub fn start(&mut self, prompt: &str, options: &str) -> Result<Generation, JsValue> {
        let options: json::Generate = json::read(options)?;
        let policy = Some(options.policy());
        let engine = self.alone()?;
        let asked = Asked::new(engine, prompt, options, policy)?;
        let inner = engine.start(&asked.ids, asked.options).map_err(to_js)?;
        Ok(Generation { inner, reading: asked.reading })
    }

    /// The next tokens as `{ids, text, parts, logprobs}` in JSON, the last where asked for, or `undefined` at the end.
    ///
    /// # Errors
    /// Where the device fails.
    pub async fn next(&mut self, generation: &mut Generation) -> Result<Option<String>, JsValue> {
        let engine = self.alone()?;
        let Some(piece) = engine.next(&mut generation.inner).await.map_err(to_js)? else { return Ok(None) };
        let mut parts = generation.reading.push(&piece.text);
        if generation.inner.finish().is_some() {
            parts.extend(generation.reading.finish());
        }
        Ok(Some(json::write(&json::Piece::new(piece, parts))))
    }
}

impl Model {
    /// The engine for one prompt. Requests under way end with their scheduler: nothing is told of them any more.
    fn alone(&mut self) -> Result<&mut Engine, JsValue> {
        self.requests.clear();
        self.runner.alone().map_err(to_js)
    }
}

/// A generation under way.
#[wasm_bindgen]
pub struct Generation {
    inner: engine::Generation,
    reading: Reading,
}

#[wasm_bindgen]
impl Generation {
    /// How it ended as JSON, `{stopReason, timings, stats, fallback, content, reasoning, toolCalls, problems, message}`, or `undefined` before its
    /// end.
    pub fn finish(&self) -> Option<String> {
        self.inner.finish().map(|finish| json::write(&json::Finish::alone(finish, self.reading.answer())))
    }
}
