//! Requests that share the engine's steps.

use std::collections::BTreeMap;

use wasm_bindgen::prelude::*;

use super::Model;
use super::error::{code, to_js};
use super::json::{self, EventKind, Finish, Piece};
use super::reading::{Asked, Reading};
use crate::engine::scheduler::{RERANK_INSTRUCTION, rerank_prompt, yes_probability};
use crate::engine::{self, EmbeddingRequest, Engine, GenerateOptions, Request, RequestId};
use crate::error::{Error, Result};

/// Requests under way, and what becomes of what they give.
pub(super) type Requests = BTreeMap<RequestId, Wanted>;

pub(super) enum Wanted {
    Answer(Box<Reading>),
    Embedding,
    /// How likely the first of two tokens is, where one of them comes.
    Score([u32; 2]),
}

#[wasm_bindgen]
impl Model {
    /// Takes a request for an answer, with the arguments of [`Model::start`]; returns its number. No work is done before the next [`Model::step`].
    ///
    /// # Errors
    /// Those of [`Model::start`].
    pub fn submit(&mut self, prompt: &str, options: &str) -> Result<f64, JsValue> {
        let options: json::Generate = json::read(options)?;
        let scheduler = self.runner.together().map_err(to_js)?;
        let Asked { ids, options, reading } = Asked::new(scheduler.engine(), prompt, options, None)?;
        let id = scheduler.submit(Request::new(&ids, options)).map_err(to_js)?;
        Ok(self.wait_for(id, Wanted::Answer(Box::new(reading))))
    }

    /// Takes a text whose embedding is wanted: `pooling` is `"last"` or `"mean"` as JSON. Returns the request's number.
    ///
    /// # Errors
    /// Where the text does not fit the context.
    pub fn submit_embedding(&mut self, text: &str, pooling: &str, normalise: bool) -> Result<f64, JsValue> {
        let pooling: json::Pooling = json::read(pooling)?;
        let scheduler = self.runner.together().map_err(to_js)?;
        let tokens = scheduler.engine().raw_prompt(text);
        let request = EmbeddingRequest { tokens, pooling: pooling.into(), normalise };
        let id = scheduler.submit_embedding(request).map_err(to_js)?;
        Ok(self.wait_for(id, Wanted::Embedding))
    }

    /// Takes a document to be scored for a query; without an instruction it has the one for web searches. Returns the request's number.
    ///
    /// # Errors
    /// Where the vocabulary has no tokens for yes and no, or the document does not fit the context.
    pub fn submit_score(&mut self, query: &str, document: &str, instruction: Option<String>) -> Result<f64, JsValue> {
        let scheduler = self.runner.together().map_err(to_js)?;
        let choice = yes_and_no(scheduler.engine()).map_err(to_js)?;
        let text = rerank_prompt(instruction.as_deref().unwrap_or(RERANK_INSTRUCTION), query, document);
        let ids = scheduler.engine().tokenizer().encode_chat(&text);
        let options = GenerateOptions { max_tokens: 1, ignore_eos: true, ..GenerateOptions::default() };
        let request = Request { keep_logits: true, ..Request::new(&ids, options) };
        let id = scheduler.submit(request).map_err(to_js)?;
        Ok(self.wait_for(id, Wanted::Score(choice)))
    }

    /// Ends a request; nothing more is told of it.
    ///
    /// # Errors
    /// Where the device has failed.
    pub fn cancel(&mut self, request: f64) -> Result<(), JsValue> {
        let Some(id) = self.requests.keys().find(|id| number(**id) == request).copied() else { return Ok(()) };
        self.requests.remove(&id);
        if self.runner.peek_scheduler().is_some() {
            self.runner.together().map_err(to_js)?.cancel(id);
        }
        Ok(())
    }

    /// Goes a step on with all requests. Returns what happened to them as JSON, a list of `{request, piece}`, `{request, finish}`,
    /// `{request, embedding}`, `{request, score}` and `{request, error: {code, message}}`; all but pieces end a request.
    ///
    /// # Errors
    /// Where the device fails. Every request is then cancelled.
    pub async fn step(&mut self) -> Result<String, JsValue> {
        let scheduler = self.runner.together().map_err(to_js)?;
        match scheduler.step().await {
            Ok(events) => {
                let told: Vec<_> = events.into_iter().flat_map(|event| tell(&mut self.requests, event)).collect();
                Ok(json::write(&told))
            }
            Err(error) => {
                let ended = std::mem::take(&mut self.requests);
                ended.into_keys().for_each(|id| _ = scheduler.cancel(id));
                Err(to_js(error))
            }
        }
    }
}

impl Model {
    fn wait_for(&mut self, id: RequestId, wanted: Wanted) -> f64 {
        self.requests.insert(id, wanted);
        number(id)
    }
}

/// A request's number: they count from 1 as long as the model lives, and stay far below 2^53.
fn number(id: RequestId) -> f64 {
    id.number() as f64
}

/// The tokens that answer whether a document is what a query looks for.
fn yes_and_no(engine: &Engine) -> Result<[u32; 2]> {
    let tokenizer = engine.tokenizer();
    match (tokenizer.token_id("yes"), tokenizer.token_id("no")) {
        (Some(yes), Some(no)) => Ok([yes, no]),
        _ => {
            let found = "a vocabulary without the tokens yes and no".into();
            Err(Error::BadOption { option: "model", found, expected: "one that answers with either" })
        }
    }
}

/// What an event is to JavaScript.
fn tell(requests: &mut Requests, event: engine::Event) -> Vec<json::Event> {
    let request = event.request;
    let Some(wanted) = requests.get_mut(&request) else { return Vec::new() };
    let mut told = Vec::new();
    match (event.kind, wanted) {
        (engine::EventKind::Piece(piece), Wanted::Answer(reading)) => {
            let parts = reading.push(&piece.text);
            told.push(EventKind::Piece(Piece::new(piece, parts)));
        }
        (engine::EventKind::Piece(_), _) => {}
        (engine::EventKind::Finished(completion), Wanted::Answer(reading)) => {
            let rest = reading.finish();
            if !rest.is_empty() {
                told.push(EventKind::Piece(Piece::new(engine::Piece::default(), rest)));
            }
            told.push(EventKind::Finish(Box::new(Finish::together(&completion, reading.answer()))));
        }
        (engine::EventKind::Finished(completion), Wanted::Score([yes, no])) => {
            let logits = completion.logits.unwrap_or_default();
            told.push(EventKind::Score(yes_probability(&logits, *yes, *no)));
        }
        (engine::EventKind::Embedded(values), _) => told.push(EventKind::Embedding(values)),
        (engine::EventKind::Failed(error), _) => {
            told.push(EventKind::Error { code: code(&error), message: error.to_string() })
        }
        (engine::EventKind::Finished(_), Wanted::Embedding) => {}
    }
    if told.last().is_some_and(|kind| !matches!(kind, EventKind::Piece(_))) {
        requests.remove(&request);
    }
    told.into_iter().map(|kind| json::Event { request, kind }).collect()
}
