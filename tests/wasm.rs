//! The library inside a browser: wasm with SIMD128 gives the bits that native code gives, and JavaScript gets errors it can tell apart.
#![cfg(target_arch = "wasm32")]

mod wasm_answers;

use blueshift::engine::{BackendChoice, Engine, LoadOptions};
use blueshift::gguf::Source;
use blueshift::gpu::Gpu;
use blueshift::gpu::selftest::{self, Covered};
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::tokenizer::Decoder;
use blueshift::web::Model;
use js_sys::{Array, Function, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};
use web_sys::Blob;

wasm_bindgen_test_configure!(run_in_browser);

const _: () = assert!(cfg!(target_feature = "simd128"), "compile with -C target-feature=+simd128");

#[wasm_bindgen_test]
async fn the_cpu_backend_gives_the_known_answers() {
    for (kind, known) in wasm_answers::ANSWERS {
        let found = wasm_answers::answer(kind).await.expect("the micro models run");
        assert_eq!(found, known, "{kind:?}: found {found:#x}, expected {known:#x}");
    }
}

#[wasm_bindgen_test]
async fn the_browsers_gpu_passes_the_self_test() {
    let gpu = gpu().await;
    let report = selftest::run(&gpu, &[QuantType::Q4_1, QuantType::Q4_K], Covered::ALL)
        .await
        .expect("the device computes rightly");
    assert!(report.exact, "{:?} has other bits on {}", report.first_difference, gpu.adapter().name);
}

/// The browser's adapter; the first requests can fail while its GPU process starts.
async fn gpu() -> Gpu {
    for _ in 0..20 {
        if let Ok(gpu) = Gpu::open(None).await {
            return gpu;
        }
        let wait = Function::new_with_args("resolve", "setTimeout(resolve, 250)");
        let pause = js_sys::Promise::new(&mut |resolve, _| drop(wait.call1(&JsValue::NULL, &resolve)));
        wasm_bindgen_futures::JsFuture::from(pause).await.expect("a timer does not fail");
    }
    Gpu::open(None).await.expect("the browser offers a WebGPU adapter")
}

#[wasm_bindgen_test]
async fn characters_arrive_whole() {
    let source = Source::memory("micro", MicroModel::llama(QuantType::F32).bytes());
    let options = LoadOptions { backend: BackendChoice::Cpu, n_ctx: Some(64), ..LoadOptions::default() };
    let engine = Engine::load(source, options).await.expect("the micro model loads");
    let text = "the end: é € 🦀 and";
    let tokenizer = engine.tokenizer();
    let ids = tokenizer.encode(text, true);
    assert_eq!(tokenizer.decode(&ids), text);
    let mut decoder = Decoder::new();
    let pieces: Vec<String> = ids.iter().map(|id| decoder.push(tokenizer, *id)).collect();
    assert!(pieces.iter().all(|piece| !piece.contains(char::REPLACEMENT_CHARACTER)), "{pieces:?}");
    assert_eq!(pieces.concat() + &decoder.finish(), text);
}

fn blob(bytes: &[u8]) -> Blob {
    Blob::new_with_u8_array_sequence(&Array::of1(&Uint8Array::from(bytes))).expect("a blob of bytes")
}

async fn load(bytes: &[u8], options: &str) -> Result<Model, JsValue> {
    Model::from_blob(blob(bytes), options.into(), Function::new_no_args("")).await
}

/// Options as the package writes them: a greedy answer of at most `max_tokens`.
fn request(max_tokens: u32) -> String {
    format!(
        r#"{{"maxTokens":{max_tokens},"temperature":0,"seed":1,"topK":0,"topP":1,"minP":0,"repeatPenalty":1,
        "frequencyPenalty":0,"presencePenalty":0,"penaltyWindow":64,"logitBias":[],"suppress":[],"stop":[],
        "typicalP":1,"stopIds":[],"logprobs":null,"shape":null,"burst":null,"inFlight":null}}"#
    )
}

/// Options of a load as the package writes them.
fn loading(parallel: u32) -> String {
    format!(r#"{{"backend":"cpu","contextLength":64,"parallel":{parallel},"cacheBytes":null,"kv":"f16"}}"#)
}

#[wasm_bindgen_test]
async fn a_blob_loads_and_generates_as_json() {
    let bytes = MicroModel::llama(QuantType::Q4_0).bytes();
    let mut model = load(&bytes, &loading(1)).await.expect("the micro model loads");
    let info = model.info().expect("it is loaded");
    assert!(info.contains(r#""backend":"cpu""#) && info.contains(r#""parallel":1"#), "{info}");
    let mut generation = model.start(r#"{"text":"the"}"#, &request(3)).expect("a valid request");
    while model.next(&mut generation).await.expect("decodes").is_some() {}
    let finish = generation.finish().expect("it has ended");
    for part in ["stopReason", "decodeMs", "latencyMs", "content", "reasoning", "toolCalls", "problems", "message"] {
        assert!(finish.contains(part), "{part} is missing in {finish}");
    }
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

/// The ids of each request, in the order of their numbers, once all have ended.
async fn drawn(model: &mut Model, n: usize) -> Vec<Vec<u64>> {
    let mut ids = std::collections::BTreeMap::<u64, Vec<u64>>::new();
    let mut ended = 0;
    while ended < n {
        let told = json(&model.step().await.expect("a step"));
        for event in told.as_array().expect("a list") {
            let request = event["request"].as_u64().expect("a number");
            ended += usize::from(event.get("finish").is_some());
            let drawn = event["piece"]["ids"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_u64);
            ids.entry(request).or_default().extend(drawn);
        }
    }
    ids.into_values().collect()
}

#[wasm_bindgen_test]
async fn requests_at_once_give_what_each_gives_alone() {
    let bytes = MicroModel::llama(QuantType::Q4_0).bytes();
    let mut model = load(&bytes, &loading(3)).await.expect("the micro model loads");
    let prompts = ["the", "and then there was", "in", "on"].map(|text| format!(r#"{{"text":"{text}"}}"#));
    let mut alone = Vec::new();
    for prompt in &prompts {
        model.submit(prompt, &request(9)).expect("a request");
        alone.extend(drawn(&mut model, 1).await);
    }
    for prompt in &prompts {
        model.submit(prompt, &request(9)).expect("a request");
    }
    let cancelled = model.submit(r#"{"text":"nobody waits for this"}"#, &request(40)).expect("a request");
    model.cancel(cancelled).expect("it is under way");
    assert_eq!(drawn(&mut model, 4).await, alone);
    assert!(alone.iter().all(|ids| !ids.is_empty()));
    let stats = json(&model.stats().expect("it is loaded"));
    assert_eq!((&stats["scheduler"]["running"], &stats["scheduler"]["pages"]["in_use"]), (&json("0"), &json("0")));
    assert_eq!(stats["scheduler"]["most_rows"], 3);
    // The engine may be used by one alone again, and then by many.
    let mut generation = model.start(&prompts[1], &request(9)).expect("a valid request");
    let mut ids = Vec::new();
    while let Some(piece) = model.next(&mut generation).await.expect("decodes") {
        ids.extend(json(&piece)["ids"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_u64));
    }
    assert_eq!(ids, alone[1]);
    // Cancelling what ended before then is nothing to those that came after.
    let first = model.submit(&prompts[1], &request(9)).expect("a request");
    assert!(first > cancelled);
    for old in 1..=cancelled as u32 {
        model.cancel(f64::from(old)).expect("nothing to do");
    }
    assert_eq!(drawn(&mut model, 1).await[0], alone[1]);
}

#[wasm_bindgen_test]
async fn embeddings_come_as_json() {
    let bytes = MicroModel::llama(QuantType::Q4_0).bytes();
    let mut model = load(&bytes, &loading(2)).await.expect("the micro model loads");
    for pooling in [r#""last""#, r#""mean""#] {
        model.submit_embedding("the end", pooling, true).expect("a text");
        let mut told = Vec::new();
        while told.is_empty() {
            told.extend(json(&model.step().await.expect("a step")).as_array().expect("a list").clone());
        }
        let values = told[0]["embedding"].as_array().expect("an embedding").iter().filter_map(|x| x.as_f64());
        let length: f64 = values.map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-6, "{pooling}: {length}");
    }
}

#[wasm_bindgen_test]
async fn errors_carry_their_code() {
    let options = &loading(1);
    let not_gguf = load(b"this is no model, only a sentence", options).await.err();
    let bytes = MicroModel::llama(QuantType::Q4_0).bytes();
    let cut = load(&bytes[..bytes.len() / 2], options).await.err();
    let bad_json = load(&bytes, "{").await.err();
    let mut model = load(&bytes, options).await.expect("the micro model loads");
    let none = model.start(r#"{"text":"the"}"#, &request(0)).err();
    let long = format!(r#"{{"text":"{}"}}"#, "z".repeat(100));
    let too_long = model.start(&long, &request(1)).err();
    let too_long_for_many = model.submit(&long, &request(1)).err();
    let many = load(&bytes, &loading(65)).await.err();
    let score = model.submit_score("a", "b", None).err();
    let chat = |more: &str| format!(r#"{{"messages":[{{"role":"user","content":"a"}}],{more}}}"#);
    let nameless = model.start(&chat(r#""tools":[{"type":"function","function":{}}]"#), &request(1)).err();
    let required = model.start(&chat(r#""tools":[],"toolChoice":"required""#), &request(1)).err();
    let cases = [
        (not_gguf, "NotGguf"),
        (cut, "Malformed"),
        (bad_json, "BadOption"),
        (none, "BadOption"),
        (too_long, "ContextFull"),
        (too_long_for_many, "ContextFull"),
        (many, "BadOption"),
        (score, "BadOption"),
        (nameless, "BadTool"),
        (required, "BadOption"),
    ];
    for (error, code) in cases {
        let error = error.unwrap_or_else(|| panic!("{code} was expected, nothing was refused"));
        let text = |key: &str| Reflect::get(&error, &key.into()).ok().and_then(|v| v.as_string()).unwrap_or_default();
        assert!(error.is_instance_of::<js_sys::Error>(), "{code}");
        assert_eq!((text("name").as_str(), text("code").as_str()), ("BlueshiftError", code), "{}", text("message"));
        assert!(!text("message").is_empty(), "{code}");
    }
}
