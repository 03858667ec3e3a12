//! The engine as JavaScript sees it: two classes, used by the npm package's worker. Nothing else knows JavaScript.
//!
//! Options and results cross the border as JSON text (`json.rs`), errors as `Error` objects with a `code` (`error.rs`).

pub mod checks;
mod error;
mod json;

use js_sys::Function;
use wasm_bindgen::prelude::*;

use crate::engine::{self, Engine, LoadOptions};
use crate::gguf::Source;
use crate::model::load::Progress;

use error::to_js;

/// Sends panics to the console with their message and place.
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
}

/// A loaded model.
#[wasm_bindgen]
pub struct Model {
    engine: Engine,
}

#[wasm_bindgen]
impl Model {
    /// Loads from an address that answers range requests. `options` is `{backend, contextLength}` as JSON;
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
            progress: Some(Box::new(progress)),
            ..LoadOptions::default()
        };
        let engine = Engine::load(source, options).await.map_err(to_js)?;
        Ok(Self { engine })
    }

    /// What is loaded and what executes it, as JSON.
    pub fn info(&self) -> String {
        json::write(&json::Info::from(self.engine.info()))
    }

    /// Measures the model: `options` is a [`engine::BenchOptions`], the result a [`engine::BenchReport`], both as JSON.
    ///
    /// # Errors
    /// Whatever [`Engine::bench`] reports, as a JavaScript `Error`.
    pub async fn bench(&mut self, options: String) -> Result<String, JsValue> {
        let report = self.engine.bench(json::read(&options)?).await.map_err(to_js)?;
        Ok(json::write(&report))
    }

    /// Tells where the time of a made-up answer goes: `options` is a [`engine::ProfileOptions`], the result a [`engine::Profile`], both as
    /// JSON. The cache is empty afterwards.
    ///
    /// # Errors
    /// Whatever [`Engine::profile`] reports, as a JavaScript `Error`.
    pub async fn profile(&mut self, options: String) -> Result<String, JsValue> {
        let profile = self.engine.profile(json::read(&options)?).await.map_err(to_js)?;
        Ok(json::write(&profile))
    }

    /// The token ids of a text as a raw prompt.
    pub fn tokenize(&self, text: &str) -> Vec<u32> {
        self.engine.raw_prompt(text)
    }

    /// Begins a generation. `prompt` is `{messages}` or `{text}`, `options` all of the package's
    /// `EngineOptions`, both as JSON.
    ///
    /// # Errors
    /// Where the chat template fails, the prompt does not fit the context or an option is out of its range.
    pub fn start(&mut self, prompt: &str, options: &str) -> Result<Generation, JsValue> {
        let ids = match json::read(prompt)? {
            json::Prompt::Chat { messages } => self.engine.chat_prompt(&messages).map_err(to_js)?,
            json::Prompt::Raw { text } => self.engine.raw_prompt(&text),
        };
        let options: json::Generate = json::read(options)?;
        let inner = self.engine.start(&ids, options.into()).map_err(to_js)?;
        Ok(Generation { inner })
    }

    /// The next tokens as `{ids, text, logprobs}` in JSON, the last where asked for, or `undefined` at the end.
    ///
    /// # Errors
    /// Where the device fails.
    pub async fn next(&mut self, generation: &mut Generation) -> Result<Option<String>, JsValue> {
        let piece = self.engine.next(&mut generation.inner).await.map_err(to_js)?;
        Ok(piece.map(|piece| json::write(&json::Piece::from(&piece))))
    }
}

/// A generation under way.
#[wasm_bindgen]
pub struct Generation {
    inner: engine::Generation,
}

#[wasm_bindgen]
impl Generation {
    /// How it ended, `{stopReason, timings, stats, fallback}` as JSON, or `undefined` before its end.
    pub fn finish(&self) -> Option<String> {
        self.inner.finish().map(|finish| json::write(&json::Finish::from(finish)))
    }
}
